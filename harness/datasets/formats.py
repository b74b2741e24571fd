"""Recognise the format of a folder by its files' names, and read it.

To add a format, write a module with its :class:`harness.datasets.source.Format` and list that in ``FORMATS``.
"""

from __future__ import annotations

from pathlib import Path

from harness.config import page
from harness.datasets import beir, dureader, msmarco, native, trec, xor_tydi
from harness.datasets.source import DatasetSource, Format, find_files
from harness.errors import FileError, did_you_mean, listed, nearest_or_known, quoted_name

FORMATS = (native.FORMAT, beir.FORMAT, trec.FORMAT, msmarco.FORMAT, xor_tydi.FORMAT, dureader.FORMAT)


def read(folder: Path, split: str | None) -> DatasetSource:
    """Read a folder in the format of its files.

    Args:
        folder: files of a dataset.
        split: the user's choice of queries and judgements, where there are several.

    Raises:
        FileError: no format or more than one fits, the split is unknown, or a file is wrong.
    """
    # A copy is not a format for people, so no message names it.
    if split is None and native.is_copy(folder):
        return native.read_copy(folder)
    format = _recognise(folder)
    if format.splits is not None:
        return format.read(folder, _choose(folder, format, format.splits(folder), split))
    if split is not None:
        raise FileError(f"{folder}: the {format.name} format has no splits; leave '#{split}' out")
    return format.read(folder)


def name_of(folder: Path) -> str:
    """Return the name of a folder's format; raise FileError if no format or more than one fits."""
    return native.FORMAT.name if native.is_copy(folder) else _recognise(folder).name


def missing_folder(folder: Path) -> FileError | None:
    """Return the error for a folder that does not exist; the error suggests the neighbour with the nearest name."""
    if folder.is_dir():
        return None
    neighbours = [path.name for path in folder.parent.glob("*/")]
    near = did_you_mean(folder.name, neighbours)
    return FileError(f"{folder}: this folder does not exist; give one with corpus, queries and qrels{near}")


def _recognise(folder: Path) -> Format:
    if error := missing_folder(folder):
        raise error
    missing = {format.name: _missing(format, folder) for format in FORMATS}
    fitting = [format for format in FORMATS if not missing[format.name]]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        names = " and ".join(format.name for format in fitting)
        raise FileError(f"{folder}: its files fit {names}; leave the files of one format in it")
    present = {format.name: len(format.files) - len(missing[format.name]) for format in FORMATS}
    most = max(present.values())
    if not most:
        what = "has no file of a known format" if any(folder.iterdir()) else "is empty"
        beir_files = "corpus.jsonl, queries.jsonl and qrels/test.tsv as BEIR has them"
        others = f"the files of another format ({page('docs/guides/datasets.md')} lists them)"
        raise FileError(f"{folder}: this folder {what}; add {beir_files}, or {others}")
    near = [name for name, count in present.items() if count == most]
    lacking = ", or ".join(f"{' and '.join(missing[name])} ({name})" for name in near)
    raise FileError(f"{folder}: lacks {lacking}; add corpus, queries and qrels (each may be .gz or .zst)")


def _missing(format: Format, folder: Path) -> list[str]:
    """Return the patterns of the missing kinds of files."""
    return [" or ".join(patterns) for patterns in format.files if not find_files(folder, patterns)]


def _choose(folder: Path, format: Format, splits: dict[str, Path], split: str | None) -> str:
    names = sorted(splits)
    if split is not None:
        if split not in splits:
            raise FileError(f"{folder}: unknown split {quoted_name(split)}{nearest_or_known(split, names)}")
        return split
    if format.default_split in splits:
        return format.default_split
    if not names:
        raise FileError(f"{folder}: has no split with both queries and judgements; add the files")
    if len(names) > 1:
        raise FileError(f"{folder}: has the splits {listed(names)}; name one, e.g. {folder.name}#{names[0]}")
    return names[0]
