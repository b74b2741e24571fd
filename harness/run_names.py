"""What run files are called in tables: their names, less the ending that says what kind of file they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from harness.errors import UsageError

# Behind the last dot may stand part of a name as well: ``bm25-0.9``, ``input.bbn1`` of TREC itself.
_ENDINGS = (".run", ".trec", ".txt", ".res", ".tsv")


def of_files(paths: Sequence[Path]) -> tuple[str, ...]:
    """A name for each file, in their order; the whole name where two would be called the same without it.

    Raises:
        UsageError: two files have one name.
    """
    names = [_short(path.name) for path in paths]
    while clashes := {name for name, count in Counter(names).items() if count > 1}:
        whole = [path.name if name in clashes else name for name, path in zip(names, paths, strict=True)]
        if whole == names:
            path = next(path for name, path in reversed([*zip(names, paths, strict=True)]) if name in clashes)
            raise UsageError(f"{path}: two runs are called {path.name!r}; rename one")
        names = whole
    return tuple(names)


def _short(name: str) -> str:
    plain = name.removesuffix(".gz")
    ending = next((each for each in _ENDINGS if plain.lower().endswith(each)), "")
    return plain[: len(plain) - len(ending)] or name
