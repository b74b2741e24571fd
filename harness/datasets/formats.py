"""A folder -> the format that its files are in, recognised by their names, and its reader."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness.datasets import beir, dureader, line_files, msmarco, native, transfer, trec, xor_tydi
from harness.datasets.records import Source
from harness.errors import FileError, did_you_mean

Splits = dict[str, Path]


@dataclass(frozen=True)
class Format:
    """How a format is recognised: for each kind of file, patterns of which one must match.

    ``splits`` finds what may be chosen from (the first of ``preferred`` that is there, else the only one), and
    ``read`` takes the folder and the choice; a format without splits is read whole.
    """

    name: str
    files: tuple[tuple[str, ...], ...]
    read: Callable[[Path, str], Source]
    splits: Callable[[Path], Splits] | None = None
    preferred: tuple[str, ...] = ()

    def missing(self, folder: Path) -> list[str]:
        """The kinds of files that are not there, as their patterns say it."""
        return [" or ".join(patterns) for patterns in self.files if not line_files.find(folder, patterns)]


FORMATS = (
    Format("harness", (("corpus.jsonl",), ("queries.jsonl",), ("qrels.trec",)), lambda folder, _: native.read(folder)),
    Format(
        "BEIR",
        (("corpus.jsonl",), ("queries.jsonl",), ("qrels/*.tsv",)),
        beir.read,
        beir.splits,
        preferred=("test",),
    ),
    Format("TREC", (trec.DOCUMENTS, trec.TOPICS, trec.QRELS), lambda folder, _: trec.read(folder)),
    Format(
        "MS MARCO", (("collection.tsv",), ("queries.*.tsv",), ("qrels.*.tsv",)), msmarco.read, splits=msmarco.splits
    ),
    Format(
        "XOR-TyDi",
        (xor_tydi.COLLECTION, xor_tydi.QUESTIONS, xor_tydi.TRANSLATED),
        xor_tydi.read,
        splits=xor_tydi.splits,
    ),
    Format(
        "DuReader-retrieval",
        (dureader.PASSAGES, dureader.IDS, dureader.QUESTIONS),
        lambda folder, _: dureader.read(folder),
    ),
)


def read(folder: Path, split: str | None) -> Source:
    """Read a folder in the format that its files are in.

    Args:
        split: which part of the queries and judgements, where there are several.

    Raises:
        FileError: no format or more than one fits, the split is not there, or a file is wrong.
    """
    # No format for people, so that no message names it.
    if split is None and transfer.is_shipped(folder):
        return transfer.read(folder)
    found = _recognise(folder)
    if found.splits is None:
        if split is not None:
            raise FileError(f"{folder}: the {found.name} format has no splits; leave '#{split}' out")
        return found.read(folder, "")
    return found.read(folder, _choose(folder, found, found.splits(folder), split))


def _recognise(folder: Path) -> Format:
    if not folder.is_dir():
        raise FileError(f"{folder}: no such folder; give one that holds corpus, queries and qrels")
    missing = {each: each.missing(folder) for each in FORMATS}
    fitting = [each for each in FORMATS if not missing[each]]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        names = " and ".join(each.name for each in fitting)
        raise FileError(f"{folder}: its files fit {names}; leave those of one format in it")
    most = max(len(each.files) - len(missing[each]) for each in FORMATS)
    if not most:
        looked = "; ".join(f"{each.name}: {', '.join(' or '.join(names) for names in each.files)}" for each in FORMATS)
        raise FileError(f"{folder}: no format of datasets that is known; looked for {looked} (each may be .gz or .zst)")
    near = [each for each in FORMATS if len(each.files) - len(missing[each]) == most]
    lacking = ", or ".join(f"{' and '.join(missing[each])} ({each.name})" for each in near)
    raise FileError(
        f"{folder}: lacks {lacking}; each may be .gz or .zst, and a dataset needs corpus, queries and qrels"
    )


def _choose(folder: Path, found: Format, splits: Splits, split: str | None) -> str:
    known = sorted(splits)
    if split is not None:
        if split not in splits:
            raise FileError(f"{folder}: no split {split!r}{did_you_mean(split, known)}; it has {', '.join(known)}")
        return split
    for name in found.preferred:
        if name in splits:
            return name
    if len(known) != 1:
        has = f"has the splits {', '.join(known)}; name one, e.g. {folder.name}#{known[0]}" if known else "has no split"
        raise FileError(f"{folder}: {has}{'' if known else ' with both queries and judgements; add the files'}")
    return known[0]
