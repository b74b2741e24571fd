"""Rows that are kept in the cache against rows made anew; and how any two lists of rows are compared."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.analysis import row_cache, rows
from harness.analysis.cell_cache import Made
from harness.errors import HarnessError
from harness.evaluation.per_query import PerQuery
from harness.results.integrity_samples import Mismatch, differences
from harness.results.reader import StoredJob

# What names a row in a report, whatever stands above it.
_NAMES = ("origin", "suite", "system", "dataset", "scenario", "profile", "isolation")
# Lists of rows, with what else names one there; and what in a row is a sentence.
_ROWS: dict[str, tuple[str, ...]] = {"rows": (), "overhead": ("key",), "left_out": ("key",)}
_SENTENCES = ("notes", "price_note", "reasons", "reason")

# Rows without money by these measures, and what they are made of by query.
Measured = Callable[[Sequence[str]], Made]


@dataclass
class Recomputed:
    """Makes rows of the jobs that can be read, once for each choice of measures."""

    jobs: Sequence[StoredJob]
    _made: dict[tuple[str, ...], Made] = field(default_factory=dict)

    def __call__(self, measures: Sequence[str]) -> Made:
        """The rows and what they are made of; errors as :func:`harness.analysis.rows.measure`."""
        names = tuple(measures)
        if names not in self._made:
            self._made[names] = rows.measure_all(self.jobs, measures=names)
        return self._made[names]


def look(root: Path, cache: Path, measured: Measured) -> Iterator[Mismatch]:
    """What is kept for ``root`` as it is now, and would be shown instead of rows made anew."""
    for each in row_cache.kept(root, cache):
        place, found = f"kept rows {each.path.name}", each.rows
        if found is None:
            yield Mismatch(place, "damaged", "nothing: the next table makes them anew")
            continue
        try:
            again, by_query, _ = measured(found.measures)
        except HarnessError as error:
            yield Mismatch(place, f"{len(found.rows)} rows", f"none: {error}")
            continue
        again = row_cache.priceable(again) if each.for_prices else again
        yield from compared(place, dataclasses.asdict(found), dataclasses.asdict(again))
        if each.by_query is not None:
            anew = {one.key: one for one in by_query}
            yield from differences(f"{place}: by query", _plain(each.by_query), _plain(anew))


def _plain(found: Mapping[str, PerQuery]) -> dict[str, Any]:
    """What rows are made of, as plain values by key."""
    return {
        key: {
            "queries": each.query_ids,
            "latency_s": each.latency_s.tolist(),
            "measures": {name: values.tolist() for name, values in each.measures.items()},
            "quantiles_s": each.quantiles_s,
        }
        for key, each in found.items()
    }


def compared(place: str, stored: Mapping[str, Any], follows: Mapping[str, Any]) -> Iterator[Mismatch]:
    """Everything but rows by its name, and rows by what names them, in whatever order they stand.

    Figures and verdicts are compared, sentences are not: another version may have better ones.
    """
    for name, more in _ROWS.items():
        there, here = (
            {_named(row, more): _without_sentences(row) for row in each.get(name, ())} for each in (stored, follows)
        )
        yield from _rows(f"{place}: {name}", there, here)
    rest = [{key: each[key] for key in each if key not in (*_ROWS, "notes")} for each in (stored, follows)]
    yield from differences(place, *rest)


def _without_sentences(row: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in row.items() if name not in _SENTENCES}
    if isinstance(found := kept.get("findings"), list | tuple):
        kept["findings"] = [{**each, "text": None} if isinstance(each, dict) else each for each in found]
    return kept


def _rows(place: str, there: Mapping[str, Any], here: Mapping[str, Any]) -> Iterator[Mismatch]:
    for name in dict.fromkeys((*there, *here)):
        if name not in here:
            yield Mismatch(f"{place}: {name}", "a row", "none: no stored job gives it")
        elif name not in there:
            yield Mismatch(f"{place}: {name}", "no row", "one: its jobs are stored")
        else:
            yield from differences(f"{place}: {name}", there[name], here[name])


def _named(row: dict[str, Any], more: Sequence[str]) -> str:
    """What row it is; enums and their texts are the same here."""
    values = (row.get(name) for name in (*_NAMES, *more))
    return "/".join(str(getattr(value, "value", value)) for value in values if value is not None)
