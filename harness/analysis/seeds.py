"""One row for a model trained with several seeds: its values by query are means over the seeds.

Boytsov et al. (2025, section 3.2) train each model three times, average each query's values over the seeds, and test
the averages, so that a difference does not rest on a lucky seed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from harness.analysis import axes
from harness.analysis.table import FirstStage, Resources, Row, Table, Timing, Validity
from harness.driver.records import Outcome
from harness.errors import counted
from harness.evaluation.per_query import PerQuery
from harness.stats import Estimate

# How fields of the seeds' records become one, by name.
_Means = Mapping[str, Callable[[Sequence[Any]], Any]]
# The beginning of the note under a table with such means.
NOTE = "means over seeds"
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
    notes = (*table.notes, f"{NOTE}: {models}") if models else table.notes
    return replace(table, rows=tuple(rows), notes=notes), values


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
    measures = _means([row.measures for row in rows])
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
        latency=_mean_record([row.latency for row in rows], _LATENCY),
        throughput_qps=_mean([row.throughput_qps for row in rows]),
        resources=_mean_record([row.resources for row in rows], _RESOURCES),
        index=_mean_record([row.index for row in rows], _INDEX),
        cost=_mean_record([row.cost for row in rows], _COST),
        judged=_mean_record([row.judged for row in rows], {"unjudged_share": _average}),
        counts={
            name: mean
            for name in first.counts
            if (mean := _average([row.counts.get(name) for row in rows])) is not None
        },
        first_stage=_mean_stage([row.first_stage for row in rows]),
        trials=_sum(row.trials for row in rows),
        jobs=sum(row.jobs for row in rows),
        attempts=sum(row.attempts for row in members),
        keys=tuple(itertools.chain.from_iterable(row.keys for row in rows)),
        notes=(*_seed_notes(rows, members), *dict.fromkeys(note for row in rows for note in row.notes)),
    )


def _mean_record(records: Sequence[Any], means: _Means) -> Any:
    """Return the first record with the named fields replaced by a mean over all records."""
    changes = {name: mean([getattr(each, name) for each in records]) for name, mean in means.items()}
    return replace(records[0], **changes)


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


def _mean(estimates: Sequence[Estimate]) -> Estimate:
    """Return the mean of the seeds' figures; its ends are the means of the seeds' ends, as if errors were equal."""
    missing = next((each for each in estimates if each.value is None), None)
    if missing is not None:
        return missing
    values = [each.value for each in estimates if each.value is not None]
    lows, highs = [each.low for each in estimates], [each.high for each in estimates]
    reason = next((each.reason for each in estimates if each.reason), None)
    return Estimate(float(np.mean(values)), _average(lows), _average(highs), reason)


def _means(figures: Sequence[Mapping[str, Estimate]]) -> dict[str, Estimate]:
    """Return the means of figures by name."""
    return {name: _mean([each.get(name, Estimate(None)) for each in figures]) for name in figures[0]}


def _average(numbers: Sequence[float | None]) -> float | None:
    """Return the mean; ``None`` if a number is missing."""
    known = [number for number in numbers if number is not None]
    return float(np.mean(known)) if known and len(known) == len(numbers) else None


def _most(numbers: Sequence[int | None]) -> int | None:
    return max((number for number in numbers if number is not None), default=None)


def _sum(numbers: Iterable[int | None]) -> int | None:
    known = list(numbers)
    return None if None in known else sum(filter(None, known))


def _mean_timing(timings: Sequence[Timing | None]) -> Timing | None:
    known = [each for each in timings if each is not None]
    if not known:
        return None
    whole = known if len(known) == len(timings) else [Timing(Estimate(None), Estimate(None))]
    return Timing(_mean([each.mean_s for each in whole]), _mean([each.p50_s for each in whole]))


def _mean_stages(stages_s: Sequence[Mapping[str, Timing]]) -> dict[str, Timing | None]:
    return {name: _mean_timing([each.get(name) for each in stages_s]) for name in stages_s[0]}


def _mean_stage(stages: Sequence[FirstStage | None]) -> FirstStage | None:
    """Return the first stage, which all seeds share, with the seeds' mean gain and harm."""
    known = [each for each in stages if each is not None]
    if len(known) < len(stages):
        return None
    return replace(known[0], gain=_means([each.gain for each in known]), harm=_means([each.harm for each in known]))


# How each figure of the seeds becomes one.  No spread is kept: the seeds' queries and jobs are not pooled.
_LATENCY: _Means = {
    **dict.fromkeys(("mean_s", "p50_s", "p95_s", "p99_s"), _mean),
    **dict.fromkeys(("like_queries_s", "these_queries_s", "at_most_s"), _means),
    "service_s": _mean_timing,
    "stages_s": _mean_stages,
    "spread_s": lambda _: {},
    "trial_means_s": lambda means: tuple(itertools.chain.from_iterable(means)),
    "trial_spread_s": lambda _: None,
}
_RESOURCES: _Means = {each.name: _most if each.metadata.get("rule") is max else _average for each in fields(Resources)}
_INDEX: _Means = {"size_bytes": _most, "build_s": _average}
_COST: _Means = dict.fromkeys(("sequential", "saturated", "tokens", "build", "storage_per_month"), _mean)
