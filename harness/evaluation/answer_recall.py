"""How deep in the texts of a run's hits an answer stands, in tokens: what R@2kt and R@5kt are made of.

XOR-TyDi's evaluator joins the tokens of a query's hits, best first, cuts the list at 2,000 or 5,000, and looks for an
answer in what is left.  So an answer is found within L tokens if and only if the shortest list that holds one has at
most L, whatever L is: that length is stored once, beside the judged hits, as lines ``query<TAB>found<TAB>tokens``
(``found`` is ``-`` where no answer is among the first ``tokens``).  Where questions name their languages, that is a
fourth field, and questions without hits have a line too: the mean over languages needs all of them.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.errors import FileError
from harness.untrusted import MAX_FILE_BYTES, bounded_lines, open_regular, unpacked

# Cutting texts into tokens takes a millisecond each: this many of a query's are looked at, and R@10kt is the deepest.
MOST_TOKENS = 10_000
_MOST_LINES, _LONGEST_LINE = 1_000_000, 4096


@dataclass(frozen=True)
class Depth:
    """``found``: how many tokens the shortest list has that holds an answer.

    ``tokens``: how many were looked at, all that the hits have if those are fewer than ``MOST_TOKENS``; where an
    answer was found, none beyond it.  ``language``: of the question; ``""`` where it names none.
    """

    found: int | None
    tokens: int
    language: str = ""


Depths = Mapping[str, Depth]


def written(depths: Depths) -> bytes:
    """The text of the file."""
    rows = (
        (query, "-" if depth.found is None else str(depth.found), str(depth.tokens), depth.language)
        for query, depth in depths.items()
    )
    return "".join("\t".join(row).rstrip("\t") + "\n" for row in rows).encode("utf-8")


def read(path: Path) -> dict[str, Depth]:
    """What :func:`written` wrote, gzipped.

    Raises:
        FileError: it is missing or damaged; names file and line.
    """
    found: dict[str, Depth] = {}
    number = 0
    try:
        with open_regular(path, MAX_FILE_BYTES) as file:
            for line in bounded_lines(unpacked(file), _LONGEST_LINE):
                number += 1
                if number > _MOST_LINES:
                    raise ValueError(f"more than {_MOST_LINES:,} lines make no sense")
                query, depth, tokens, *language = line.decode("utf-8").rstrip("\n").split("\t")
                each = found[query] = Depth(None if depth == "-" else int(depth), int(tokens), *language[:1])
                if len(language) > 1:
                    raise ValueError("more than four fields")
                if not 0 <= (each.found or 0) <= each.tokens:
                    raise ValueError("found beyond its tokens")
    except FileNotFoundError:
        raise FileError(f"{path}: no such file; measure again or restore it") from None
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise FileError(f"{path}:{number}: damaged: {error}; restore it or measure again") from error
    return found
