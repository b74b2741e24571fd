"""Judgements that take the place of those that were stored with results: theirs, and what was judged since.

What was measured stays as it is.  Another file of judgements stands in for stored ones that it holds all of, whatever
grades it gives them; so that nothing is judged by another dataset's, or by fewer judgements than were there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness import trec_files
from harness.errors import FileError, UsageError
from harness.judged_runs import JudgedRuns
from harness.trec_files import Qrels


@dataclass(frozen=True)
class Instead:
    """A file of judgements, as it was read; ``sha256`` names its content."""

    name: str
    sha256: str
    qrels: Qrels

    def lacks(self, stored: Qrels) -> int:
        """How many of the stored judgements it does not hold."""
        return sum(document not in self.qrels.get(query, {}) for query, judged in stored.items() for document in judged)

    def named(self, stored: Qrels) -> str:
        """What it is, beside those that were stored, all of which it holds."""
        pairs = sum(len(judged) for judged in stored.values())
        more = sum(len(judged) for judged in self.qrels.values()) - pairs
        other = sum(
            self.qrels[query][document] != grade
            for query, judged in stored.items()
            for document, grade in judged.items()
        )
        return (
            f"{self.name} (SHA-256 {self.sha256[:12]}), not by the judgements that were stored: {more:,} more than "
            f"those {pairs:,}, and {other:,} other grades"
        )


@dataclass(frozen=True)
class Stand:
    """What results are judged by: ``qrels``, the ``sha256`` of those that stand in and what they are, else why not."""

    qrels: Qrels
    sha256: str | None = None
    judged_by: str | None = None
    notes: tuple[str, ...] = ()


def read(path: Path) -> Instead:
    """Read judgements that shall stand in for others.

    Raises:
        FileError: as :func:`harness.trec_files.read_qrels`.
    """
    qrels = trec_files.read_qrels(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror}; name a file of judgements") from error
    return Instead(path.name, hashlib.sha256(content).hexdigest(), qrels)


def stand(stored: Qrels, instead: Instead) -> Stand:
    """What to judge by where these were stored."""
    lacking = instead.lacks(stored)
    if not lacking:
        return Stand(instead.qrels, instead.sha256, instead.named(stored))
    total = sum(len(judged) for judged in stored.values())
    if lacking == total:  # another dataset's
        return Stand(stored)
    said = f"judged by the stored judgements: {instead.name} lacks {lacking:,} of those {total:,}"
    return Stand(stored, notes=(said,))


def runs(found: Sequence[JudgedRuns], instead: Instead) -> tuple[JudgedRuns, ...]:
    """Runs with other judgements where those were stored that these hold all of.

    Raises:
        UsageError: nowhere.
    """
    stands = [None if each.hits_alone else stand(each.qrels, instead) for each in found]
    if not any(each is not None and each.sha256 for each in stands):
        raise nowhere(instead)
    return tuple(
        each if now is None else replace(each, qrels=now.qrels) for each, now in zip(found, stands, strict=True)
    )


def nowhere(instead: Instead) -> UsageError:
    """The judgements stand in for none."""
    return UsageError(
        f"{instead.name}: lacks judgements that were stored with each of these results; harness qrels add makes a file "
        "that holds those and more"
    )
