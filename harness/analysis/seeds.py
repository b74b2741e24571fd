"""One row for a model trained with several seeds: its values by query are means over the seeds.

Boytsov et al. (2025, section 3.2) train each model three times, average each query's values over the seeds, and test
the averages, so that a difference does not rest on a lucky seed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from harness.analysis import axes, notes
from harness.analysis.table import Carbon, CpuUse, Latency, Resources, Row, Table, Timing, Validity
from harness.driver.records import Outcome
from harness.errors import counted
from harness.estimate import Estimate
from harness.evaluation.per_query import PerQuery

# From best to worst: the mean is as doubtful as its most doubtful seed.
_VALIDITIES = (Validity.CLEAN, Validity.UNKNOWN, Validity.NOISY, Validity.INVALID)


def averaged(
    table: Table, per_query: Mapping[str, PerQuery], seeds: Mapping[str, str]
) -> tuple[Table, dict[str, PerQuery]]:
    """Replace the rows of a model's seeds by one row; return the values by query of all rows as well.

    Only comparable rows on one hardware profile are averaged.  A failed seed is left out, and a note says so; if all
    failed, their rows stay.

    Args:
        table: rows of stored jobs.
        per_query: their values by query, by :attr:`Row.per_query_key`.
        seeds: model by system, for systems that are a seed of a model.
    """
    groups: dict[object, list[Row]] = {}
    for row in table.rows:
        if row.system in seeds:
            groups.setdefault(_group(row, seeds[row.system]), []).append(row)
    values, rows = dict(per_query), []
    averaged_rows: dict[str, set[int]] = {}
    for row in table.rows:
        members = groups.get(_group(row, seeds[row.system])) if row.system in seeds else None
        measured = [each for each in members or () if each.outcome is Outcome.OK]
        if not members or not measured:
            rows.append(row)
        elif row is members[0]:
            found = [per_query[each.per_query_key] for each in measured if each.per_query_key in per_query]
            joined = _mean_values(found) if len(found) == len(measured) else None
            mean = _mean_row(measured, members, seeds[row.system], joined)
            rows.append(mean)
            averaged_rows.setdefault(mean.system, set()).add(len(measured))
            if joined is not None:
                values[mean.per_query_key] = replace(joined, key=mean.per_query_key)
    models = ", ".join(f"{model} ({' or '.join(map(str, sorted(counts)))})" for model, counts in averaged_rows.items())
    told = (*table.notes, f"{notes.SEEDS}: {models}") if models else table.notes
    return replace(table, rows=tuple(rows), notes=told), values


def models_of(pairs: Mapping[str, str], seeds: Mapping[str, str]) -> dict[str, str]:
    """Return pairs of systems, with seeds replaced by their models."""
    return {seeds.get(system, system): seeds.get(other, other) for system, other in pairs.items()}


def _group(row: Row, model: str) -> object:
    stage = row.first_stage
    depth = None if stage is None else (stage.system, stage.depth)
    return model, row.suite, row.origin, row.profile, axes.comparison_group(row), depth


def _mean_values(found: Sequence[PerQuery]) -> PerQuery:
    """Return the mean over seeds of each query's values; ``nan`` where a seed has none."""
    first = found[0]
    aligned = [each.on(first.query_ids) for each in found]
    names = [name for name in first.measures if all(name in each.measures for each in aligned)]
    timed = all(len(each.latency_s) for each in aligned)
    return PerQuery(
        first.key,
        first.query_ids,
        np.mean([each.latency_s for each in aligned], axis=0) if timed else np.zeros(0),
        {name: np.mean([each.measures[name] for each in aligned], axis=0) for name in names},
    )


def _mean_row(rows: Sequence[Row], members: Sequence[Row], model: str, values: PerQuery | None) -> Row:
    """Return the mean of the measured rows of a model's seeds."""
    from harness.evaluation.evaluate import mean_estimate  # late: most suites name no seeds

    first = rows[0]
    measures = _mean_of([row.measures for row in rows])
    stages = [row.first_stage for row in rows]
    if values is not None:
        for name in measures.keys() & values.measures.keys():
            column = zip(values.query_ids, values.measures[name].tolist(), strict=True)
            known = {query: value for query, value in column if np.isfinite(value)}
            if known and measures[name].value is not None:
                measures[name] = replace(mean_estimate(known), value=measures[name].value)
    return replace(
        first,
        system=model,
        sweep=None,
        measures=measures,
        validity=max((row.validity for row in rows), key=_VALIDITIES.index),
        findings=tuple(dict.fromkeys(finding for row in rows for finding in row.findings)),
        latency=_mean_record(
            [row.latency for row in rows],
            _TIMES,
            # The seeds' queries and jobs are not pooled, so no spread is known.
            spread_s={},
            trial_means_s=tuple(itertools.chain.from_iterable(row.latency.trial_means_s for row in rows)),
            trial_spread_s=None,
        ),
        throughput_qps=_mean_of([row.throughput_qps for row in rows]),
        resources=_mean_record([row.resources for row in rows], _USED),
        index=_mean_record([row.index for row in rows], ("size_bytes", "build_s")),
        cpu=_mean_record([row.cpu for row in rows], _CPU),
        cost=_mean_record([row.cost for row in rows], _COSTS),
        carbon=_mean_carbon([row.carbon for row in rows]),
        judged=_mean_record([row.judged for row in rows], ("unjudged_share",)),
        counts=_mean_of([row.counts for row in rows]),
        first_stage=None if None in stages else _mean_record(stages, ("gain", "harm")),
        trials=_sum(row.trials for row in rows),
        jobs=sum(row.jobs for row in rows),
        attempts=sum(row.attempts for row in members),
        keys=tuple(itertools.chain.from_iterable(row.keys for row in rows)),
        notes=(*_seed_notes(rows, members), *dict.fromkeys(note for row in rows for note in row.notes)),
    )


def _mean_record(records: Sequence[Any], names: Iterable[str], **others: Any) -> Any:
    """Return the first record with the named fields replaced by a mean over all records, and with other fields."""
    return replace(
        records[0], **{name: _mean_of([getattr(each, name) for each in records]) for name in names}, **others
    )


def _mean_carbon(found: Sequence[Carbon]) -> Carbon:
    """Return the mean of each case; seeds on different processors have no cases in common."""
    first = next((each for each in found if each.grams.value is None), found[0])
    if first.grams.value is None:
        return first
    if len({each.processors for each in found}) > 1:
        return Carbon(
            grams=Estimate(None, reason="its seeds ran on different processors, or only some have measured joules")
        )
    cases = zip(*(each.cases for each in found), strict=True)
    means = tuple(sum(case) / len(found) for case in cases)
    return replace(first, grams=_mean_of([each.grams for each in found]), cases=means)


def _seed_notes(rows: Sequence[Row], members: Sequence[Row]) -> Iterable[str]:
    measure = next(iter(rows[0].measures), None)
    each = [
        row.system if measure is None or row.measured(measure) is None else f"{row.system} {row.measured(measure):.4f}"
        for row in rows
    ]
    named = f" by {measure}" if measure is not None else ""
    yield f"mean of {counted(len(rows), 'seed')}{named}: {', '.join(each)}; values by query are means over them"
    failed = [f"{row.system} ({row.outcome.value})" for row in members if row not in rows]
    if failed:
        yield f"not in the mean, as they failed: {', '.join(failed)}; run them again"


def _mean_of(figures: Sequence[Any]) -> Any:
    """Return the mean of the seeds' figures: estimates, timings, numbers, or figures by name; of bytes the largest.

    The ends of an interval are the means of the seeds' ends, as if errors were equal.  A number that a seed lacks is
    missing.
    """
    known = [figure for figure in figures if figure is not None]
    if not known:
        return None
    if isinstance(known[0], Mapping):
        means = {name: _mean_of([each.get(name) for each in known]) for name in known[0]}
        return {name: mean for name, mean in means.items() if mean is not None}
    if isinstance(known[0], Timing):
        return Timing(*(_mean_of([each and getattr(each, name) for each in figures]) for name in ("mean_s", "p50_s")))
    if isinstance(known[0], Estimate):
        missing = [each or Estimate(None) for each in figures if each is None or each.value is None]
        if missing:
            return missing[0]
        value = float(np.mean([each.value for each in known]))
        low, high = (_average([getattr(each, name) for each in known]) for name in ("low", "high"))
        return Estimate(value, low, high, next((each.reason for each in known if each.reason), None))
    if isinstance(known[0], int):
        return max(known)
    return _average(figures)


def _average(numbers: Sequence[float | None]) -> float | None:
    """Return the mean; ``None`` if a number is missing."""
    known = [number for number in numbers if number is not None]
    return float(np.mean(known)) if len(known) == len(numbers) else None


def _sum(numbers: Iterable[int | None]) -> int | None:
    known = list(numbers)
    return None if None in known else sum(filter(None, known))


_TIMES = [each.name for each in fields(Latency) if each.name not in ("spread_s", "trial_means_s", "trial_spread_s")]
_USED = [each.name for each in fields(Resources)]
_CPU = [each.name for each in fields(CpuUse)]
_COSTS = ("sequential", "saturated", "metered", "tokens", "build", "storage_per_month")
