"""Recognise the format of a folder by its files' names, and read it.

A format is a module with ``NAME``; ``FILES``, the patterns of each kind of file, one of which must match;
``splits(folder)``, the user's choice of queries and judgements; and ``read(folder, split)``.  To add one, write such a
module and list it in ``FORMATS``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from harness.datasets import beir, dureader, msmarco, native, trec, xor_tydi
from harness.datasets.source import DatasetSource, find_files
from harness.errors import FileError, did_you_mean


class Format(Protocol):
    """Format of datasets: a module."""

    @property
    def NAME(self) -> str:
        """Name in messages."""

    @property
    def FILES(self) -> tuple[tuple[str, ...], ...]:
        """Patterns for each kind of file; every kind is needed."""

    @property
    def DEFAULT_SPLIT(self) -> str | None:
        """Split to read if the user names none; without it, the only one."""

    def splits(self, folder: Path) -> dict[str, Path] | None:
        """Return the splits of a folder; ``None``: the format has none."""

    def read(self, folder: Path, split: str) -> DatasetSource:
        """Read a folder that has all files; ``split`` is ``""`` without splits."""


FORMATS: tuple[Format, ...] = (native, beir, trec, msmarco, xor_tydi, dureader)


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
    splits = format.splits(folder)
    if splits is None:
        if split is not None:
            raise FileError(f"{folder}: the {format.NAME} format has no splits; leave '#{split}' out")
        return format.read(folder, "")
    return format.read(folder, _choose(folder, format, splits, split))


def _recognise(folder: Path) -> Format:
    if not folder.is_dir():
        raise FileError(f"{folder}: no such folder; give one with corpus, queries and qrels")
    missing = {format.NAME: _missing(format, folder) for format in FORMATS}
    fitting = [format for format in FORMATS if not missing[format.NAME]]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        names = " and ".join(format.NAME for format in fitting)
        raise FileError(f"{folder}: its files fit {names}; leave those of one format in it")
    present = {format.NAME: len(format.FILES) - len(missing[format.NAME]) for format in FORMATS}
    most = max(present.values())
    if not most:
        formats = "; ".join(f"{each.NAME}: {', '.join(' or '.join(names) for names in each.FILES)}" for each in FORMATS)
        raise FileError(f"{folder}: not a known dataset format; looked for {formats} (each may be .gz or .zst)")
    near = [name for name, count in present.items() if count == most]
    lacking = ", or ".join(f"{' and '.join(missing[name])} ({name})" for name in near)
    raise FileError(
        f"{folder}: lacks {lacking}; each may be .gz or .zst, and a dataset needs corpus, queries and qrels"
    )


def _missing(format: Format, folder: Path) -> list[str]:
    """Return the patterns of the missing kinds of files."""
    return [" or ".join(patterns) for patterns in format.FILES if not find_files(folder, patterns)]


def _choose(folder: Path, format: Format, splits: dict[str, Path], split: str | None) -> str:
    names = sorted(splits)
    if split is not None:
        if split not in splits:
            raise FileError(f"{folder}: no split {split!r}{did_you_mean(split, names)}; it has {', '.join(names)}")
        return split
    if format.DEFAULT_SPLIT in splits:
        return format.DEFAULT_SPLIT
    if not names:
        raise FileError(f"{folder}: has no split with both queries and judgements; add the files")
    if len(names) > 1:
        raise FileError(f"{folder}: has the splits {', '.join(names)}; name one, e.g. {folder.name}#{names[0]}")
    return names[0]
