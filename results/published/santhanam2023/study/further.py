"""Tables 5 and 6 of the paper, and the settings that its text states."""

from __future__ import annotations

from harness.analysis.published import Count, Published, TableLine


class Examples(TableLine):
    """Row of Table 5: how many examples a dataset has for training and for development."""

    dataset: str
    training: Count
    dev: Count


class Lengths(TableLine):
    """Row of Table 6: the longest query and passage that a system reads, in tokens."""

    system: str
    query_tokens: Count
    passage_tokens: Count


class Setting(TableLine):
    """A fact from the text and its place: a commit, a version, a number of epochs, a model's training data."""

    subject: str
    value: str
    kind: str
    section: str


def examples(published: Published) -> tuple[Examples, ...]:
    """Read Table 5."""
    return published.table(Examples, published.about.files.table5)


def lengths(published: Published) -> tuple[Lengths, ...]:
    """Read Table 6."""
    return published.table(Lengths, published.about.files.table6)


def settings(published: Published) -> tuple[Setting, ...]:
    """Read the settings in the text."""
    return published.table(Setting, published.about.files.settings)
