"""Turn the stored samples of a cell's jobs into arrays for statistics."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from harness.analysis.table import OTHER
from harness.errors import StoreError
from harness.stats import Floats, Ints

if TYPE_CHECKING:
    import pyarrow as pa


# The driver's trial number for a query asked twice in a row after the trials (docs/reference/results.md).
REPEAT_TRIAL = -2
_STAGE, _COUNT = "stage_", "count_"
# The grid of queries by trials: nearly every query is asked in nearly every trial.
_FREE_PLACES, _MOST_PLACES_A_SAMPLE = 1 << 20, 16


# The fields with a number for each sample.
_COLUMNS = ("query", "trial", "latency_s", "service_s", "end_s", "batch", "failed", "matching")


@dataclass(frozen=True)
class Timings:
    """The timed samples of one cell, in each job's order.

    ``query`` points into ``queries``, ``trial`` into ``trials``: pairs of job number and the trial's number in that
    job, ascending.  All arrays have shape (samples,); a missing whole number is -1, a missing time ``nan``.
    ``end_s`` is when an open loop's query had its answer, since the trial's start.
    ``batch`` is ``None`` where no sample has one, and so are ``failed``, queries of an open loop without an answer, and
    ``matching``, how many documents a query's filter lets through (-1: it has no filter).
    ``stages_s`` maps a stage's name to its seconds.
    ``counts`` maps the name of a count of work to its numbers, as floats.
    ``repeat_*`` are the samples asked twice in a row after the trials, shape (repeats,), in their order.
    """

    queries: tuple[str, ...]
    trials: tuple[tuple[int, int], ...]
    query: Ints
    trial: Ints
    latency_s: Floats
    service_s: Floats | None = None
    end_s: Floats | None = None
    batch: Ints | None = None
    failed: NDArray[np.bool_] | None = None
    matching: Ints | None = None
    stages_s: dict[str, Floats] = field(default_factory=dict)
    counts: dict[str, Floats] = field(default_factory=dict)
    repeat_query: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    repeat_job: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    repeat_s: Floats = field(default_factory=lambda: np.zeros(0))

    @property
    def job(self) -> Ints:
        """The job number of each sample."""
        return np.asarray([job for job, _ in self.trials], dtype=np.int64)[self.trial]

    def only(self, trials: Iterable[tuple[int, int]]) -> Timings:
        """Return the samples of some trials; repeats stay."""
        wanted = set(trials)
        kept = [place for place, pair in enumerate(self.trials) if pair in wanted]
        chosen = self.where(np.isin(self.trial, kept))
        trial = np.searchsorted(np.asarray(kept, dtype=np.int64), chosen.trial)
        return replace(chosen, trials=tuple(self.trials[place] for place in kept), trial=trial)

    @property
    def answered(self) -> Timings:
        """The samples with an answer."""
        return self if self.failed is None else self.where(~self.failed)

    def where(self, mask: NDArray[np.bool_]) -> Timings:
        """Return some of the samples; all trials and queries keep their numbers."""
        columns = {name: getattr(self, name) for name in _COLUMNS}
        return replace(
            self,
            **{name: values[mask] for name, values in columns.items() if values is not None},
            stages_s={name: values[mask] for name, values in self.stages_s.items()},
            counts={name: values[mask] for name, values in self.counts.items()},
        )

    @property
    def outer_stages_s(self) -> dict[str, Floats]:
        """The stages that are not part of another stage; ``bm25.retrieve`` is part of ``bm25``."""
        stages = self.stages_s
        return {name: seconds for name, seconds in stages.items() if name.rpartition(".")[0] not in stages}

    @property
    def other_s(self) -> dict[str, Floats]:
        """The time outside all stages: ``other`` for the call, ``<stage>.other`` for a stage with parts.

        It is ``nan`` if a sample has no stages, and negative if stages overlap.  An adapter's own ``other`` belongs to
        it.
        """
        inner: dict[str, list[Floats]] = {}
        for name, seconds in self.stages_s.items():
            whole, _, last = name.rpartition(".")
            if whole not in self.stages_s:
                whole, last = "", name
            if last != OTHER:
                inner.setdefault(whole, []).append(seconds)
        spent_s = self.latency_s if self.service_s is None else self.service_s
        found = {}
        for whole, parts in sorted(inner.items()):
            stacked = np.stack(parts)
            whole_s = self.stages_s[whole] if whole else spent_s
            rest = whole_s - np.nansum(stacked, axis=0)
            # The clock's resolution alone may let the sum exceed the whole by this much.
            rest = np.where((rest < 0) & (rest >= -whole_s * 1e-3 - 1e-6), 0.0, rest)
            found[f"{whole}.{OTHER}" if whole else OTHER] = np.where(np.isfinite(stacked).any(axis=0), rest, np.nan)
        return found

    @property
    def staged_s(self) -> Floats:
        """The sum of each sample's outer stages; a missing stage counts 0."""
        stages = list(self.outer_stages_s.values())
        return np.asarray(np.nansum(np.stack(stages), axis=0)) if stages else np.zeros_like(self.latency_s)

    @cached_property
    def grid(self) -> Floats:
        """Seconds of each query in each trial, shape (queries, trials); ``nan``: not timed."""
        grid = np.full((len(self.queries), len(self.trials)), np.nan)
        grid[self.query, self.trial] = self.latency_s
        return grid

    @property
    def first_trials(self) -> dict[int, int]:
        """The index of each job's first trial."""
        return {job: trial for trial, (job, _) in reversed(list(enumerate(self.trials)))}

    def whole(self) -> Floats:
        """Return seconds of the trials that timed every query, shape (queries, whole trials)."""
        return self.grid[:, self._is_whole]

    def whole_trials(self) -> list[tuple[int, int]]:
        """Return the trials that timed every query."""
        return list(itertools.compress(self.trials, self._is_whole))

    @property
    def _is_whole(self) -> NDArray[np.bool_]:
        return np.asarray(np.isfinite(self.grid).all(axis=0))


def read(tables: Iterable[tuple[int, pa.Table]]) -> Timings:
    """Join the samples of several jobs.

    Args:
        tables: job number and its samples (:func:`harness.results.samples.load_samples`).

    Raises:
        StoreError: a latency is negative or not a number, or a trial holds a query twice.
        KeyError: a column is missing.
    """
    joined = _joined(tables)

    def seconds(column: str) -> Floats:
        return np.asarray(joined.column(column).to_numpy() / 1e9, dtype=np.float64)

    places, names = _query_places(joined)
    jobs, latency = joined.column("job").to_numpy(), seconds("latency_ns")
    # Warm-up rows have trial -1 already, unless the file contradicts itself.
    numbers = joined.column("trial").to_numpy().astype(np.int64)
    numbers = np.where(joined.column("warmup").to_numpy() & (numbers >= 0), -1, numbers)
    if not np.all(np.isfinite(latency) & (latency >= 0)):
        raise StoreError("samples: a latency is negative or not a number; measure the job again")
    timed, repeated = numbers >= 0, numbers == REPEAT_TRIAL
    queries, known_places = _timed_queries(places[timed], names)
    query = known_places[places[timed]]
    pairs, trial = np.unique(np.stack([jobs[timed], numbers[timed]]), axis=1, return_inverse=True)
    trial = trial.reshape(-1)
    if len(queries) * pairs.shape[1] > max(_FREE_PLACES, _MOST_PLACES_A_SAMPLE * len(query)):
        raise StoreError(
            f"samples: {len(queries):,} queries in {pairs.shape[1]:,} trials cannot be right; measure the job again"
        )
    if timed.any() and np.bincount(query * pairs.shape[1] + trial).max() > 1:
        raise StoreError("samples: a query was timed twice in one trial; measure the job again")
    known = repeated & (known_places[places] >= 0)
    columns = sorted(joined.column_names)
    # With missing values numpy would turn whole numbers into floats.
    batch = joined.column("batch").fill_null(-1).to_numpy()[timed] if "batch" in columns else None
    return Timings(
        queries=queries,
        trials=tuple((int(job), int(number)) for job, number in pairs.T),
        query=query,
        trial=trial.astype(np.int64),
        latency_s=latency[timed],
        service_s=seconds("service_ns")[timed] if "service_ns" in columns else None,
        end_s=(seconds("scheduled_ns") + latency)[timed] if "scheduled_ns" in columns else None,
        batch=None if batch is None else np.asarray(batch, dtype=np.int64),
        matching=joined.column("matching").fill_null(-1).to_numpy()[timed] if "matching" in columns else None,
        failed=joined.column("failed").is_valid().to_numpy()[timed] if "failed" in columns else None,
        stages_s={
            name.removeprefix(_STAGE).removesuffix("_ns"): seconds(name)[timed]
            for name in columns
            if name.startswith(_STAGE)
        },
        counts={
            name.removeprefix(_COUNT): np.asarray(joined.column(name).to_numpy()[timed], dtype=np.float64)
            for name in columns
            if name.startswith(_COUNT)
        },
        repeat_query=known_places[places[known]],
        repeat_job=jobs[known],
        repeat_s=latency[known],
    )


def _joined(tables: Iterable[tuple[int, pa.Table]]) -> pa.Table:
    """Join the samples of several jobs, with job numbers and one dictionary of query ids."""
    import pyarrow as pa

    numbered = [table.append_column("job", pa.repeat(job, len(table))) for job, table in tables]
    return pa.concat_tables(numbered, promote_options="default").unify_dictionaries()


def _query_places(joined: pa.Table) -> tuple[Ints, list[str]]:
    """Return the index of each sample's query id in a list of ids, which may hold an id twice."""
    chunks = joined.column("query_id").chunks
    places = [np.asarray(chunk.indices.to_numpy(), dtype=np.int64) for chunk in chunks]
    return (np.concatenate(places), chunks[0].dictionary.to_pylist()) if chunks else (np.zeros(0, dtype=np.int64), [])


def _timed_queries(places: Ints, names: list[str]) -> tuple[tuple[str, ...], Ints]:
    """Return the timed queries' ids in order, and the index of each of ``names`` among them (-1: not timed)."""
    timed = np.unique(places).tolist()
    queries = sorted({names[place] for place in timed})
    number = {name: index for index, name in enumerate(queries)}
    known = np.full(len(names), -1, dtype=np.int64)
    known[timed] = [number[names[place]] for place in timed]
    return tuple(queries), known
