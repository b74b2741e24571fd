"""What was merged into a file of judgements: who judged, when, from which file, what it changed.

It stands beside the file, as ``<file>.provenance.jsonl``, a merge a line.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from harness.errors import FileError

_ENDING = ".provenance.jsonl"
# Version of a line.  History:
#   1  first version
_VERSION = 1


@dataclass(frozen=True)
class Conflict:
    """A pair that both files judge, in two ways."""

    query_id: str
    doc_id: str
    before: int
    given: int


@dataclass(frozen=True)
class Merge:
    """What one merge did: a line of provenance.

    ``iteration`` marks its judgements.  ``before`` and ``after`` are the SHA-256 of the judgements' files, ``unfilled``
    counts pairs that nobody has judged yet, ``same`` those that were judged so before.
    """

    iteration: int
    source: str
    date: str
    file: str
    file_sha256: str
    before: str
    after: str
    added: int
    same: int
    unfilled: int
    conflicts: tuple[Conflict, ...]
    resolved: str


def place(path: Path) -> Path:
    """Where the provenance of a file of judgements stands."""
    return path.with_name(path.name + _ENDING)


def read(path: Path) -> tuple[Merge, ...]:
    """What is recorded of a file of judgements, the first merge first; nothing where nothing was merged.

    Raises:
        FileError: the record is damaged.
    """
    record, found = place(path), []
    with contextlib.suppress(FileNotFoundError):
        for number, line in enumerate(record.read_bytes().splitlines(), start=1):
            try:
                raw = json.loads(line)
                if raw.pop("version") != _VERSION:
                    raise ValueError("another version")
                raw["conflicts"] = tuple(Conflict(**each) for each in raw["conflicts"])
                found.append(Merge(**raw))
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                raise FileError(
                    f"{record}:{number}: no provenance that this harness reads ({error}); restore it, or move it away"
                ) from error
    return tuple(found)


def breaks(merges: Sequence[Merge], sha256: str) -> tuple[int, ...]:
    """After which merges something else changed the file, by their numbers; ``sha256`` names what it is now."""
    found = [*(each.before for each in merges[1:]), sha256]
    return tuple(each.iteration for number, each in enumerate(merges) if each.after != found[number])


def lines(merges: Sequence[Merge]) -> str:
    """What the record holds of these merges."""
    return "".join(json.dumps({"version": _VERSION, **asdict(each)}) + "\n" for each in merges)
