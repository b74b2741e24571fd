"""Runs -> what is to be judged next: the unjudged documents that any of them ranks high, in an order that hides whose
they are.

A document's place follows from a hash of the seed and of the pair's own ids: no system, rank or score has a part in it,
and a run more or less moves nothing.
"""

from __future__ import annotations

import codecs
import hashlib
import zlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import FileError, UsageError
from harness.evaluation import input_files, unjudged
from harness.evaluation.judged_runs import JudgedRuns
from harness.evaluation.unjudged import Unjudged


@dataclass(frozen=True)
class Pool:
    """Pairs of query and document in the order of judging; ``judged`` more are among those hits, and are judged.

    ``queries`` maps ids to texts, of the queries that were asked.  ``systems`` says of each system what is unjudged
    among its hits: that is for who asked, and for nobody who judges.
    """

    pairs: tuple[tuple[str, str], ...]
    queries: dict[str, str]
    judged: int
    systems: tuple[tuple[str, Unjudged], ...]
    depth: int

    @property
    def queries_to_judge(self) -> int:
        """How many queries have something to be judged."""
        return len({query for query, _ in self.pairs})


def has_judgements(qrels: Path) -> bool:
    """Whether there is a line in it that is no comment; what is damaged is for its reader to refuse."""
    try:
        with input_files.opened(qrels) as (_, lines):
            return any(line.removeprefix(codecs.BOM_UTF8).split()[:1] not in ([], [b"#"]) for line in lines)
    except (FileError, OSError, EOFError, zlib.error):
        return True


def pool(found: Sequence[JudgedRuns], depth: int, seed: int) -> Pool:
    """Put the first ``depth`` hits of all runs together, less what is judged.

    Args:
        found: runs of one dataset, by one collection's documents; several samples of its queries are one pool.
        depth: ranks to look at.
        seed: of the order.

    Raises:
        UsageError: the runs are of several datasets or of no query, or are judged by answers in the texts of their
            hits.
    """
    names = sorted({(each.dataset, each.corpus_sha256 or "") for each in found})
    if len(names) > 1:
        raise UsageError(
            f"runs of {len(names)} collections ({', '.join(name for name, _ in names)}): choose one with --only"
        )
    if any(each.hits_alone for each in found):
        raise UsageError(
            f"{found[0].dataset}: hits are judged by answers in their texts: all are judged, there is none to add"
        )
    if not any(each.queries for each in found):
        raise UsageError(f"{found[0].dataset}: there are no queries to pool for; name them with --queries")
    wanted: dict[str, set[str]] = defaultdict(set)
    judged: set[tuple[str, str]] = set()
    queries: dict[str, str] = {}
    systems = []
    for each in found:
        queries.update(each.queries)
        for system, run in each.runs.items():
            name = system if len(found) == 1 else f"{system} ({len(each.queries):,} queries)"
            systems.append((name, unjudged.count(run, each.qrels, each.query_ids, depth)))
            for query in each.queries:
                for document in run.rankings.get(query, ())[:depth]:
                    if any(document in other.qrels.get(query, {}) for other in found):
                        judged.add((query, document))
                    else:
                        wanted[query].add(document)
    pairs = tuple(
        (query, document)
        for query in sorted(wanted, key=lambda query: _place(seed, query))
        for document in sorted(wanted[query], key=lambda document: _place(seed, query, document))
    )
    return Pool(pairs, queries, len(judged), tuple(systems), depth)


def _place(seed: int, *ids: str) -> tuple[bytes, tuple[str, ...]]:
    named = "\0".join((str(seed), *ids)).encode("utf-8")
    return hashlib.sha256(named).digest(), ids
