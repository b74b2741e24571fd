"""`harness label`: passages of DuReader 2.0 with labels by its answers."""

from __future__ import annotations

from pathlib import Path

import click

from harness.cli.lines import say
from harness.cli.options import FiniteRange
from harness.commands import option
from harness.datasets.dureader_questions import LabelRule, label_questions
from harness.errors import UsageError, counted
from harness.progress import bar
from harness.untrusted import one_line


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="DIR", help="Folder to write; new.")
@click.option(
    "--threshold",
    type=FiniteRange(0, 1, max_open=True),
    default=LabelRule.threshold,
    show_default=True,
    help="A span's F1 with an answer must be above it.",
)
@click.option(
    "--characters",
    type=click.IntRange(1),
    default=LabelRule.characters,
    show_default=True,
    help="Join shorter paragraphs of a page until they have more.",
)
@click.option("--titles", is_flag=True, help="Keep the titles of pages, which share many words with the questions.")
def label(files: tuple[Path, ...], out: Path, threshold: float, characters: int, titles: bool) -> None:
    """Write a collection of passages from FILES of DuReader 2.0, labelled by human answers.

    A passage is relevant if a span of one of its paragraphs is close enough to an answer.  The defaults are
    DuReader-retrieval's (Qiu et al. 2022).
    """
    if len({path.name for path in files}) < len(files):
        raise UsageError("two files have one name; name each file once")
    with bar("label", "questions") as step:
        made = label_questions(files, out, LabelRule(threshold, characters, titles), step).facts()
    size = f"{counted(made['passages'], 'passage')} (median {made['median_length']:g}, mean {made['mean_length']:g}"
    say(one_line(f"{out}: {size} characters), {counted(made['queries'], 'question')}"))
    per_query = f"on average {made['relevant_per_query']:g}"
    say(f"{counted(made['queries_with_relevant'], 'question')} with relevant passages, {per_query}")
    if made["queries_without_answer"]:
        say(f"{counted(made['queries_without_answer'], 'question')} without answers cannot be labelled", err=True)
    say(
        f'Measure with datasets = ["./{out.name}"] in a suite, or pool its runs: harness pool RUNS '
        f"{option('dataset', out)}"
    )
