"""Score stored runs with other qrels, or without some queries.

Measurements stay as they are.  Other qrels replace stored ones only if they contain all of the stored judgements (with
any grades), so that a run is never scored by another dataset's qrels or by fewer judgements.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness import filesystem
from harness.errors import UsageError
from harness.evaluation import trec, trec_lines
from harness.evaluation.evaluate_runs import count_and_ids
from harness.evaluation.judged_runs import JudgedRuns
from harness.evaluation.trec import Qrels
from harness.untrusted import decode, reading

_WITHOUT = "without "
# White space that no id has at its ends.
_BLANKS = " \t\r\v\f"
_MOST_BYTES = 64 << 20  # of a list of ids


@dataclass(frozen=True)
class QrelsOverride:
    """A qrels file that replaces stored qrels (``None``: not given), and ids of queries to leave out.

    ``sha256``: of the qrels file; ``remarks``: sentences about it.
    """

    name: str
    sha256: str
    qrels: Qrels | None
    without: frozenset[str] = frozenset()
    without_name: str = ""
    remarks: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Hash of everything that changes a score."""
        named = "\0".join((self.sha256, self.name, self.without_name, *sorted(self.without)))
        return hashlib.sha256(named.encode("utf-8", "surrogateescape")).hexdigest()

    def lacks(self, stored: Qrels) -> int:
        """Count the stored judgements that it does not contain."""
        own = self.qrels or {}
        return sum(document not in own.get(query, {}) for query, judged in stored.items() for document in judged)

    def named(self, stored: Qrels) -> str:
        """Describe its difference from the stored qrels, which it contains."""
        own = self.qrels or {}
        pairs = sum(len(judged) for judged in stored.values())
        more = sum(len(judged) for judged in own.values()) - pairs
        other = sum(
            own[query][document] != grade for query, judged in stored.items() for document, grade in judged.items()
        )
        said = (
            f"by {self.name} (SHA-256 {self.sha256[:12]}) instead of the {pairs:,} stored judgements, with "
            f"{more:,} more and {other:,} other grades"
        )
        return "; ".join((said, *self.remarks))


@dataclass(frozen=True)
class JudgementBasis:
    """The qrels that score a run; ``sha256``: set if they replace the stored ones.

    ``changes``: sentences about replaced judgements; ``notes``: about judgements that stayed, and why.
    """

    qrels: Qrels
    sha256: str | None = None
    changes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def read(qrels: Path | None, without: Path | None = None) -> QrelsOverride | None:
    """Read other qrels, and ids of queries to leave out, one per line; ``None``: neither file is given.

    Raises:
        FileError: a file cannot be read.
    """
    if qrels is None and without is None:
        return None
    found = QrelsOverride("", "", None)
    if qrels is not None:
        trec_lines.refuse_pipe(qrels)
        # The name without its folder: cached rows keep these sentences for any file of this name and content.
        given = trec.read_qrels_file(qrels, name=qrels.name)
        found = replace(found, name=qrels.name, qrels=given.qrels, sha256=filesystem.sha256(qrels), remarks=given.notes)
    if without is not None:
        with reading(without, "name a file of queries' ids, one a line", damage=trec_lines.DAMAGED):
            lines = decode(trec_lines.read_named(without, _MOST_BYTES), without, encoding="utf-8-sig").split("\n")
        # Other white space may belong to an id.
        ids = frozenset(name for line in lines if (name := line.strip(_BLANKS)))
        found = replace(found, without=ids, without_name=without.name)
    return found


def judgement_basis(stored: Qrels, override: QrelsOverride) -> JudgementBasis:
    """Return the qrels that score a run with these stored qrels."""
    if override.qrels is None:
        return JudgementBasis(stored)
    lacking = override.lacks(stored)
    if not lacking:
        return JudgementBasis(override.qrels, override.sha256, (override.named(stored),))
    total = sum(len(judged) for judged in stored.values())
    if lacking == total:  # another dataset's
        return JudgementBasis(stored)
    note = f"judged by the stored judgements: {override.name} lacks {lacking:,} of the {total:,}"
    return JudgementBasis(stored, notes=(note,))


def leave_out(basis: JudgementBasis, sample: Sequence[str], override: QrelsOverride) -> JudgementBasis:
    """Add the number of queries that are left out, and the named ids that the sample does not have."""
    if not override.without.intersection(sample):
        return basis
    return replace(basis, changes=(*basis.changes, _fewer(sample, override, "; latencies are over all")))


def check(changes: Iterable[Sequence[str]], override: QrelsOverride) -> None:
    """Refuse an override that changes nothing.

    Args:
        changes: the ``changes`` of each row's :class:`JudgementBasis`.
        override: other qrels, or queries to leave out.

    Raises:
        UsageError: the qrels replace nothing, or none of the queries is in a sample.
    """
    texts = [text for of_row in changes for text in of_row]
    if override.qrels is not None and all(text.startswith(_WITHOUT) for text in texts):
        raise _replaces_none(override)
    if override.without and not any(text.startswith(_WITHOUT) for text in texts):
        raise _leaves_out_none(override)


def override_runs(runs: Sequence[JudgedRuns], override: QrelsOverride) -> tuple[JudgedRuns, ...]:
    """Apply an override to runs.

    Raises:
        UsageError: the qrels replace nothing, none of the queries is in a run, or all queries are left out.
    """
    if override.qrels is not None:
        runs = _by_other_qrels(runs, override)
    return _without(runs, override) if override.without else tuple(runs)


def _by_other_qrels(runs: Sequence[JudgedRuns], override: QrelsOverride) -> tuple[JudgedRuns, ...]:
    """Replace the qrels of runs if the override contains their stored qrels."""
    bases = [None if one.hits_alone else judgement_basis(one.qrels, override) for one in runs]
    if not any(basis is not None and basis.sha256 for basis in bases):
        raise _replaces_none(override)
    return tuple(one if basis is None else _judged(one, basis) for one, basis in zip(runs, bases, strict=True))


def _judged(runs: JudgedRuns, basis: JudgementBasis) -> JudgedRuns:
    said = (
        *(() if basis.sha256 else runs.notes),
        *(f"{runs.dataset} is judged {text}" for text in basis.changes),
        *(f"{runs.dataset}: {note}" for note in basis.notes),
    )
    return replace(runs, qrels=basis.qrels, notes=said)


def _without(runs: Sequence[JudgedRuns], override: QrelsOverride) -> tuple[JudgedRuns, ...]:
    if not any(query in one.queries for one in runs for query in override.without):
        raise _leaves_out_none(override)
    return tuple(_of_fewer_queries(one, override) for one in runs)


def _of_fewer_queries(runs: JudgedRuns, override: QrelsOverride) -> JudgedRuns:
    queries = {query: text for query, text in runs.queries.items() if query not in override.without}
    if not queries:
        raise UsageError(f"{override.without_name}: leaves no query of {runs.dataset} to score; name fewer queries")
    if len(queries) == len(runs.queries):
        return runs
    fewer = {
        system: replace(run, rankings={query: hits for query, hits in run.rankings.items() if query in queries})
        for system, run in runs.runs.items()
    }
    said = f"{runs.dataset} is judged {_fewer(tuple(runs.queries), override)}"
    return replace(runs, queries=queries, runs=fewer, notes=(*runs.notes, said))


def _fewer(sample: Sequence[str], override: QrelsOverride, more: str = "") -> str:
    gone = len(override.without.intersection(sample))
    others = sorted(override.without.difference(sample))
    also = f", which also names {count_and_ids(others)} outside the sample" if others else ""
    return f"{_WITHOUT}{gone:,} of its {len(sample):,} queries ({override.without_name}{also}{more})"


def _leaves_out_none(override: QrelsOverride) -> UsageError:
    return UsageError(f"{override.without_name}: no sample here contains any of its {len(override.without):,} queries")


def _replaces_none(override: QrelsOverride) -> UsageError:
    return UsageError(
        f"{override.name}: lacks judgements that were stored with each of these results;"
        " merge them first with harness qrels add"
    )


def id_list(queries: Iterable[str]) -> str:
    """Write ids of queries, one per line, as :func:`read` takes them.

    Raises:
        UsageError: an id would not be read back.
    """
    ids = tuple(queries)
    for query in ids:
        if "\n" in query or query.strip(_BLANKS) != query or not query or query.startswith("\ufeff"):
            raise UsageError(
                f"query {query!r}: cannot be written as one line of a list of ids; correct the id, or leave --write out"
            )
    return "".join(f"{query}\n" for query in ids)
