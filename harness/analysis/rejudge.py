"""Judgements that take the place of those that were stored with results, and queries that measures leave out.

What was measured stays as it is.  Another file of judgements stands in for stored ones that it holds all of, whatever
grades it gives them; so that nothing is judged by another dataset's, or by fewer judgements than were there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness import filesystem
from harness.errors import FileError, UsageError
from harness.evaluation import trec, trec_lines
from harness.evaluation.judged_runs import JudgedRuns
from harness.evaluation.trec import Qrels

_WITHOUT = "without "
# So many ids are named of those that a sentence is about.
_NAMED = 3


@dataclass(frozen=True)
class Instead:
    """A file of judgements, as it was read (``qrels`` is ``None``: none), and the ids of queries that do not count.

    ``sha256`` names the content of the one, ``key`` that of both.  ``remarks`` are sentences about the judgements.
    """

    name: str
    sha256: str
    qrels: Qrels | None
    without: frozenset[str] = frozenset()
    without_name: str = ""
    remarks: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """What is made with these is made with no other."""
        named = "\0".join((self.sha256, self.name, self.without_name, *sorted(self.without)))
        return hashlib.sha256(named.encode("utf-8", "surrogateescape")).hexdigest()

    def lacks(self, stored: Qrels) -> int:
        """How many of the stored judgements it does not hold."""
        own = self.qrels or {}
        return sum(document not in own.get(query, {}) for query, judged in stored.items() for document in judged)

    def named(self, stored: Qrels) -> str:
        """What it is, beside those that were stored, all of which it holds."""
        own = self.qrels or {}
        pairs = sum(len(judged) for judged in stored.values())
        more = sum(len(judged) for judged in own.values()) - pairs
        other = sum(
            own[query][document] != grade for query, judged in stored.items() for document, grade in judged.items()
        )
        said = (
            f"by {self.name} (SHA-256 {self.sha256[:12]}), not by the judgements that were stored: {more:,} more than "
            f"those {pairs:,}, and {other:,} other grades"
        )
        return "; ".join((said, *self.remarks))


@dataclass(frozen=True)
class Stand:
    """What results are judged by: ``qrels``, and ``sha256`` where those stand in for others.

    ``said`` tells what is otherwise than it was stored, ``notes`` why something is not.
    """

    qrels: Qrels
    sha256: str | None = None
    said: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def read(qrels: Path | None, without: Path | None = None) -> Instead | None:
    """Read judgements that shall stand in for others, and ids of queries, one a line; ``None``: neither is named.

    Raises:
        FileError: one cannot be read.
    """
    if qrels is None and without is None:
        return None
    found = Instead("", "", None)
    if qrels is not None:
        trec_lines.refuse_pipe(qrels)
        # By its name alone: these sentences are kept with rows that any file of this name and content stands in for.
        given = trec.read_qrels_file(qrels, name=qrels.name)
        found = replace(found, name=qrels.name, qrels=given.qrels, sha256=_sha256(qrels), remarks=given.notes)
    if without is not None:
        try:
            lines = without.read_text(encoding="utf-8-sig").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise FileError(f"{without}: cannot be read: {error}; name a file of queries' ids, one a line") from error
        ids = frozenset(line.strip() for line in lines if line.strip())
        found = replace(found, without=ids, without_name=without.name)
    return found


def _sha256(path: Path) -> str:
    try:
        return filesystem.sha256(path)
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror}; name a file of judgements") from error


def stand(stored: Qrels, instead: Instead) -> Stand:
    """What to judge by where these were stored."""
    if instead.qrels is None:
        return Stand(stored)
    lacking = instead.lacks(stored)
    if not lacking:
        return Stand(instead.qrels, instead.sha256, (instead.named(stored),))
    total = sum(len(judged) for judged in stored.values())
    if lacking == total:  # another dataset's
        return Stand(stored)
    said = f"judged by the stored judgements: {instead.name} lacks {lacking:,} of those {total:,}"
    return Stand(stored, notes=(said,))


def leave_out(found: Stand, sample: Sequence[str], instead: Instead) -> Stand:
    """The same, saying how many of a sample's queries do not count, and which of those named are none of its."""
    if not instead.without.intersection(sample):
        return found
    said = _fewer(sample, instead, "; latencies are over all")
    return replace(found, said=(*found.said, said))


def check(said: Iterable[Sequence[str]], instead: Instead) -> None:
    """Refuse what changes nothing.

    Args:
        said: of each row, what :class:`Stand` says.
        instead: what was asked for.

    Raises:
        UsageError: the judgements stand in for none, or no sample has any of the queries.
    """
    texts = [text for each in said for text in each]
    if instead.qrels is not None and all(text.startswith(_WITHOUT) for text in texts):
        raise _nowhere(instead)
    if instead.without_name and not any(text.startswith(_WITHOUT) for text in texts):
        raise _in_none(instead)


def runs(found: Sequence[JudgedRuns], instead: Instead) -> tuple[JudgedRuns, ...]:
    """Runs judged otherwise: by what is named for it, and without the queries that do not count.

    Raises:
        UsageError: the judgements stand in for none, no run was asked any of the queries, or no others are left.
    """
    if instead.qrels is not None:
        found = _by_others(found, instead)
    return _without(found, instead) if instead.without_name else tuple(found)


def _by_others(found: Sequence[JudgedRuns], instead: Instead) -> tuple[JudgedRuns, ...]:
    """With other judgements where those were stored that these hold all of."""
    stands = [None if each.hits_alone else stand(each.qrels, instead) for each in found]
    if not any(each is not None and each.sha256 for each in stands):
        raise _nowhere(instead)
    return tuple(each if now is None else _judged(each, now) for each, now in zip(found, stands, strict=True))


def _judged(each: JudgedRuns, now: Stand) -> JudgedRuns:
    said = (
        *(() if now.sha256 else each.notes),
        *(f"{each.dataset} is judged {text}" for text in now.said),
        *(f"{each.dataset}: {why}" for why in now.notes),
    )
    return replace(each, qrels=now.qrels, notes=said)


def _without(found: Sequence[JudgedRuns], instead: Instead) -> tuple[JudgedRuns, ...]:
    if not any(query in each.queries for each in found for query in instead.without):
        raise _in_none(instead)
    made = []
    for each in found:
        kept = {query: text for query, text in each.queries.items() if query not in instead.without}
        if not kept:
            raise UsageError(f"{instead.without_name}: leaves no query of {each.dataset} to judge by; name fewer")
        gone = len(each.queries) - len(kept)
        fewer = {
            system: replace(run, rankings={query: hits for query, hits in run.rankings.items() if query in kept})
            for system, run in each.runs.items()
        }
        said = f"{each.dataset} is judged {_fewer(tuple(each.queries), instead)}"
        made.append(replace(each, queries=kept, runs=fewer, notes=(*each.notes, said)) if gone else each)
    return tuple(made)


def _fewer(sample: Sequence[str], instead: Instead, more: str = "") -> str:
    gone = len(instead.without.intersection(sample))
    others = sorted(instead.without.difference(sample))
    also = f", which names {_named(others)} that the sample has not" if others else ""
    return f"{_WITHOUT}{gone:,} of its {len(sample):,} queries ({instead.without_name}{also}{more})"


def _in_none(instead: Instead) -> UsageError:
    return UsageError(f"{instead.without_name}: none of its {len(instead.without):,} queries is in a sample here")


def _named(ids: Sequence[str]) -> str:
    more = ", ..." if len(ids) > _NAMED else ""
    return f"{len(ids):,} ({', '.join(ids[:_NAMED])}{more})"


def _nowhere(instead: Instead) -> UsageError:
    return UsageError(
        f"{instead.name}: lacks judgements that were stored with each of these results; harness qrels add makes a file "
        "that holds those and more"
    )
