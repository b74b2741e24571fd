"""`harness generate` and `label`: write collections."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from harness import config, datasets
from harness.cli.lines import say
from harness.cli.options import PATH, FiniteRange, cache_option, parsed_by
from harness.commands import option
from harness.datasets.dureader_questions import LabelRule, label_questions
from harness.datasets.generate.collection import NO_LICENCE
from harness.datasets.generate.kinds import CUTS, KINDS
from harness.datasets.generate.kinds import generate as write_collection
from harness.errors import UsageError, counted
from harness.progress import bar
from harness.untrusted import one_line, split_list


def _numbers(
    kind: type[int] | type[float], least: float, most: float
) -> Callable[[tuple[str, ...]], tuple[float, ...] | None]:
    """Return the parser of a repeatable option: ascending numbers with blanks or commas between."""

    def parse(given: tuple[str, ...]) -> tuple[float, ...] | None:
        found: set[float] = set()
        for text in given:
            try:
                numbers = [kind(each) for each in split_list(text)]
            except ValueError:
                numbers = []
            if not numbers or not all(least <= number <= most for number in numbers):
                raise click.BadParameter(
                    f"{one_line(text)!r}: write numbers of {least:g} to {most:g} with blanks or commas between"
                )
            if sorted(set(numbers)) != numbers:
                raise click.BadParameter(f"{one_line(text)!r}: write each number once, the lowest first")
            found.update(numbers)
        return tuple(sorted(found)) or None

    return parse


def _span(text: str) -> tuple[int, int]:
    """Parse two whole numbers, LOW-HIGH, or one number for both."""
    match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", text)
    if not match:
        raise click.BadParameter(f"{one_line(text)!r}: write two numbers, e.g. 15-300")
    return int(match[1]), int(match[2] or match[1])


_MOST_TOKENS = 1_000_000
_SHOWN = 90  # characters of a licence; README.md has the full text


@click.command()
@click.argument("kind", type=click.Choice(list(KINDS)), metavar="KIND")
@click.option("--from", "source", required=True, metavar="DATASET", help="A dataset, as a suite names it.")
@click.option("--out", required=True, type=PATH, metavar="DIR", help="Folder to write; new.")
@click.option("--seed", type=click.IntRange(0), default=0, help="Seed of all that is drawn.")
@click.option(
    "--queries",
    type=click.IntRange(1),
    help="Most queries; of needle and passkey for each length.  [default: 1000; needle, passkey: 50]",
)
@click.option(
    "--documents",
    type=click.IntRange(1),
    help="Documents of each length (needle, passkey), or in all (larger).  [default: 100; larger: 100000]",
)
@click.option(
    "--passages",
    type=click.Choice(CUTS),
    help="Cut the source's documents into such passages (far-relevant, placed, uniform).  [default: documents]",
)
@click.option(
    "--passage-tokens",
    metavar="LOW-HIGH",
    callback=parsed_by(_span),
    help="Tokens of a passage (far-relevant, placed, uniform, needle), of a sentence (larger).  [default: 15-300; "
    "needle, larger: 5-100]",
)
@click.option(
    "--min-tokens",
    type=click.IntRange(0, _MOST_TOKENS),
    help="The relevant passage starts beyond (far-relevant); the shortest document (uniform).  [default: 512]",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(1, _MOST_TOKENS),
    help="The longest document (far-relevant, uniform, shuffled), distractor (larger).  [default: 1431; shuffled: "
    "8109; larger: 512]",
)
@click.option(
    "--lengths",
    metavar="NUMBERS",
    multiple=True,
    callback=parsed_by(_numbers(int, 1, _MOST_TOKENS)),
    help="Lengths of documents in tokens.  [default: '512 1431 4096' (placed), '256 512 ... 32768' (needle, passkey)]",
)
@click.option(
    "--depths",
    metavar="NUMBERS",
    multiple=True,
    callback=parsed_by(_numbers(float, 0, 1)),
    help="Places of the relevant passage (placed).  [default: '0 0.1 ... 1']",
)
@click.option(
    "--segments",
    metavar="LOW-HIGH",
    callback=parsed_by(_span),
    help="Segments of a document (shuffled); 1: the original.  [default: 2-6]",
)
@click.option("--train-share", type=FiniteRange(0, 1), help="Share of training queries (shuffled).  [default: 0.5]")
@click.option(
    "--candidates",
    type=click.IntRange(0),
    help="Documents of each query in candidates.trec; 0: no file (all but shuffled, joined, larger).  [default: 100]",
)
@cache_option
def generate(kind: str, source: str, out: Path, seed: int, cache: Path, **given: Any) -> None:
    """Write a collection of documents whose relevant passages have known places, from passages of DATASET.

    KIND is far-relevant (the passage starts beyond 512 tokens), placed (at given depths of given lengths), uniform
    (first, last or anywhere), needle (one sentence in a background text), passkey (a number in repeated text), shuffled
    (segments of each document in random order; a training and a test copy), joined (neighbouring documents of one
    title, in order), filtered (DATASET with fields and queries that filter on them), larger (DATASET among
    distractors).  Tokens are tokens of bert-base-uncased.
    """
    location = datasets.find(source, Path.cwd())
    with bar(f"generate {kind}", "documents") as step:
        wanted = {name: value for name, value in given.items() if value is not None}
        made = write_collection(kind, location, out, config.absolute_folder(cache), seed, wanted, step)
    licence = one_line(made.facts.licence or NO_LICENCE, _SHOWN)
    for folder, written in made.folders.items():
        mean = f", {written.tokens / written.documents:,.0f} tokens on average" if written.tokens else ""
        size = f"{counted(written.documents, 'document')}{mean}, {counted(written.queries, 'query')}"
        say(one_line(f"{folder}: {size}; licence: {licence}"))
        for reason, number in sorted(written.notes.items()):
            if number:
                say(one_line(f"{folder}: left out: {number:,} {reason}"), err=True)


@click.command()
@click.argument("files", nargs=-1, required=True, type=PATH)
@click.option("--out", required=True, type=PATH, metavar="DIR", help="Folder to write; new.")
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
