"""Stored jobs -> the table.  The one module that joins the free half's stages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from harness import attempts, cost, evaluate, instances, stats, validity
from harness.attempts import Job
from harness.errors import HarnessError, StoreError
from harness.records import Cell, Isolation, Outcome, Result
from harness.table import Figure, Machine, Price, Row, Table, Validity

MEMORY_METHOD = (
    "Peak anonymous: anonymous and shared memory, no file pages. Peak cgroup: everything charged to the job, page "
    "cache included, so it may be as large as the limit."
)

_ARCHITECTURES = {"aarch64": "arm64", "amd64": "x86_64"}


@dataclass
class _Judge:
    """Evaluates jobs; each file of judgements is read once."""

    measures: tuple[Any, ...]
    qrels: dict[Path, evaluate.Qrels] = field(default_factory=dict)

    def __call__(self, job: Job) -> evaluate.Evaluation:
        path = job.qrels_path()
        if path not in self.qrels:
            self.qrels[path] = evaluate.read_qrels(path)
        if job.run_path is None:
            raise StoreError(f"{job.folder}: holds no run; measure the job again")
        return evaluate.evaluate(evaluate.read_run(job.run_path), self.qrels[path], job.sample_ids(), self.measures)


def build(
    jobs: Iterable[Job],
    *,
    snapshot: instances.Snapshot,
    measures: Sequence[str] = evaluate.DEFAULT_MEASURES,
    keys: Collection[str] | None = None,
) -> Table:
    """Make the table: one row for each cell and isolation.

    Which of several attempts is shown, :func:`harness.attempts.choose` says; they are never pooled.
    A file of one job that cannot be read costs that job's numbers only, and the row says why.

    Args:
        jobs: stored jobs, in any order.
        snapshot: prices.
        measures: names as ir_measures writes them.
        keys: jobs to show in their cells, whatever else is stored of those; the other cells choose as ever.

    Raises:
        UsageError: a measure is unknown.
        FileError: a result's start time cannot be read.
    """
    judge = _Judge(evaluate.parse_measures(measures))
    cells: dict[tuple[Cell, Isolation], list[Job]] = defaultdict(list)
    for job in jobs:
        cells[job.result.spec.cell, job.result.spec.isolation].append(job)
    rows = sorted((_row(tries, snapshot, judge, keys) for tries in cells.values()), key=_reading_order)
    return Table(
        rows=tuple(rows),
        measures=tuple(str(measure) for measure in judge.measures),
        price_provider=snapshot.provider,
        price_region=snapshot.region,
        price_date=str(snapshot.as_of),
        price_source=snapshot.source,
        cost_formula=cost.FORMULA,
        notes=_table_notes(rows, snapshot),
    )


def _reading_order(row: Row) -> tuple[Any, ...]:
    place = (row.dataset, row.cpus, row.memory_limit_bytes, row.gpus, row.profile)
    return (*place, row.system, row.isolation, row.suite, row.scenario)


def _row(jobs: list[Job], snapshot: instances.Snapshot, judge: _Judge, keys: Collection[str] | None) -> Row:
    shown, hidden = attempts.choose(jobs, keys)
    row = replace(_outline(shown.result, snapshot, len(jobs)), notes=hidden)
    if shown.result.outcome is Outcome.OK:
        row = _with_measures(_with_latency(row, shown), shown, judge)
    verdict = validity.assess(shown.result, trial_means_s=row.trial_means_s, queries_timed=row.queries)
    return replace(row, validity=verdict.validity, notes=(*row.notes, *verdict.reasons))


def _outline(result: Result, snapshot: instances.Snapshot, tries: int) -> Row:
    """The row without what must be computed from samples and runs; a failed job's row ends here."""
    spec, environment, done = result.spec, result.environment, result.outcome is Outcome.OK
    price, price_note = _price(result, snapshot)
    return Row(
        suite=spec.cell.suite,
        system=spec.cell.system,
        dataset=spec.cell.dataset,
        scenario=spec.cell.scenario,
        profile=spec.cell.profile,
        isolation=spec.isolation,
        outcome=result.outcome,
        detail=result.detail,
        validity=Validity.CLEAN,
        key=result.key,
        started_at=result.started_at,
        machine=Machine(**{item.name: getattr(environment, item.name) for item in fields(Machine)}),
        cpus=spec.envelope.cpus,
        memory_limit_bytes=spec.envelope.memory_bytes,
        gpus=spec.envelope.gpus,
        price=price,
        price_note=price_note,
        k=spec.k,
        sample_sha256=spec.sample_sha256,
        corpus_sha256=spec.corpus_sha256,
        qrels_sha256=spec.qrels_sha256,
        peak_anon_bytes=result.memory.peak_anon_bytes if done else None,
        peak_cgroup_bytes=result.memory.peak_cgroup_bytes if done else None,
        peak_gpu_bytes=result.memory.peak_gpu_bytes if done else None,
        index_bytes=result.index.index_bytes if done and result.index else None,
        index_build_s=result.index.build_s if done and result.index else None,
        load_s=result.load_s if done else None,
        first_query_s=result.first_query_s if done else None,
        attempts=tries,
    )


def _price(result: Result, snapshot: instances.Snapshot) -> tuple[Price | None, str | None]:
    envelope = result.spec.envelope
    offer = instances.cheapest(envelope, snapshot)
    if offer is None:
        wanted = f"{envelope.cpus} CPU, {envelope.memory_bytes / 2**30:g} GiB, {envelope.gpus} GPU"
        where = f"{snapshot.provider} {snapshot.region} of {snapshot.as_of}"
        return None, f"no instance type in the prices of {where} provides {wanted}; price with another snapshot"
    price = Price(
        instance_type=offer.instance_type,
        architecture=offer.architecture,
        vcpus=offer.vcpus,
        memory_bytes=offer.memory_bytes,
        region=offer.region,
        usd_per_hour=offer.price_usd_per_hour,
        date=str(offer.price_date),
    )
    measured = _ARCHITECTURES.get(result.environment.architecture, result.environment.architecture)
    if measured == offer.architecture:
        return price, None
    return price, (
        f"priced on {offer.instance_type} ({offer.architecture}); latency was measured on {measured}, "
        "and the cost takes it to be the same there"
    )


def _with_latency(row: Row, job: Job) -> Row:
    try:
        table = job.samples()
        timed = ~table.column("warmup").to_numpy().astype(bool)
        summary = stats.summarise(
            table.column("query_id").to_numpy()[timed],
            table.column("trial").to_numpy()[timed],
            table.column("latency_ns").to_numpy()[timed] / 1e9,
            seed=job.result.spec.seed,
        )
    # ValueError and KeyError are what pyarrow raises for a damaged file and for a missing column.
    except (HarnessError, OSError, ValueError, KeyError) as error:
        reason = f"samples cannot be used: {error}"
        missing = Figure(None, reason=reason)
        figures = dict.fromkeys(("latency_mean_s", "p50_s", "p95_s", "p99_s", "usd_per_million"), missing)
        return replace(row, **figures)  # type: ignore[arg-type]
    return replace(
        row,
        queries=summary.queries,
        trials=summary.trials,
        latency_mean_s=summary.mean_s,
        p50_s=summary.percentiles_s["p50"],
        p95_s=summary.percentiles_s["p95"],
        p99_s=summary.percentiles_s["p99"],
        trial_means_s=summary.trial_means_s,
        trial_spread_s=summary.trial_spread_s,
        usd_per_million=_cost(row, summary.mean_s),
    )


def _cost(row: Row, mean_s: Figure) -> Figure:
    if row.scenario != "single_stream":
        return Figure(None, reason=f"scenario {row.scenario}: latency holds waiting or batches, so it prices no query")
    if row.price is None:
        return Figure(None, reason=row.price_note)
    if mean_s.value is None:
        return mean_s
    price = row.price.usd_per_hour
    low, high = (None if bound is None else cost.usd_per_million(bound, price) for bound in (mean_s.low, mean_s.high))
    return Figure(cost.usd_per_million(mean_s.value, price), low, high, mean_s.reason)


def _with_measures(row: Row, job: Job, judge: _Judge) -> Row:
    names = [str(measure) for measure in judge.measures]
    try:
        judged = judge(job)
    except HarnessError as error:
        missing = Figure(None, reason=f"the run cannot be judged: {error}")
        return replace(row, measures=dict.fromkeys(names, missing))
    none = None if judged.queries else "no query of the sample has judgements"
    notes = []
    if judged.unjudged:
        total = judged.queries + len(judged.unjudged)
        notes.append(f"{_named(judged.unjudged)} of {total:,} queries have no judgements, left out of the measures")
    if judged.without_hits:
        notes.append(f"{_named(judged.without_hits)} judged queries got no hits and count 0")
    if judged.tied_queries:
        notes.append(f"{_named(judged.tied_queries)} queries have equal scores, judged in the order that was returned")
    deep = [str(measure) for measure in judge.measures if evaluate.looks_deeper(measure, row.k)]
    if deep:
        look = "looks" if len(deep) == 1 else "look"
        notes.append(f"{', '.join(deep)}: {look} deeper than the {row.k} hits that were retrieved")
    return replace(
        row,
        measures={name: Figure(judged.values[name], reason=none) for name in names},
        queries_judged=judged.queries,
        queries_unjudged=judged.unjudged,
        notes=(*row.notes, *notes),
    )


def _named(queries: Sequence[str]) -> str:
    """A count with the first few ids: ``2 (q1, q7)``."""
    more = ", ..." if len(queries) > 3 else ""
    return f"{len(queries):,} ({', '.join(queries[:3])}{more})"


def _table_notes(rows: Sequence[Row], snapshot: instances.Snapshot) -> tuple[str, ...]:
    notes = [stats.METHOD, stats.PERCENTILE_METHOD, MEMORY_METHOD]
    notes.append(
        f"Cost: {cost.FORMULA} (Santhanam et al. 2023), on the cheapest instance type of the snapshot that provides "
        "the profile, burstable and bare-metal ones left out. Latency was measured on the machine named here, not on "
        "that instance."
    )
    notes.append(
        f"Prices: {snapshot.provider} {snapshot.region}, Linux on demand, {snapshot.as_of} (source: {snapshot.source})."
    )
    return (*notes, *_smallest(rows), *_shared_cpus(rows), *_mixed(rows))


def _smallest(rows: Sequence[Row]) -> Iterator[str]:
    """The third memory figure (measuring rule 16): the smallest limit that still passes, as far as rows tell."""
    held: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row.isolation is Isolation.CONTAINER and row.outcome is not Outcome.NOT_APPLICABLE:
            held[row.dataset][row.system].append(row)
    for dataset, systems in sorted(held.items()):
        compared = {name: of for name, of in sorted(systems.items()) if len({row.memory_limit_bytes for row in of}) > 1}
        if compared:
            found = ", ".join(f"{name} {_smallest_profile(of)}" for name, of in compared.items())
            yield f"Smallest profile here that passes on {dataset}: {found}."


def _smallest_profile(rows: Sequence[Row]) -> str:
    passed = [row for row in rows if row.outcome is Outcome.OK]
    smallest = min(passed, key=lambda row: (row.memory_limit_bytes, row.cpus, row.gpus, row.profile), default=None)
    return smallest.profile if smallest else "none"


def _shared_cpus(rows: Sequence[Row]) -> Iterator[str]:
    """A job that has all CPUs of its host shares them with the sampling from outside."""
    full = {
        f"{row.profile}: {row.cpus} of {row.machine.host_cpus}"
        for row in rows
        if row.outcome is Outcome.OK and row.isolation is not Isolation.FAKE and row.machine.host_cpus <= row.cpus
    }
    if full:
        yield (
            f"Profiles with all CPUs of their host ({', '.join(sorted(full))}) share them with the harness's own "
            "sampling; measure on a machine with more CPUs to separate the two."
        )


def _mixed(rows: Sequence[Row]) -> Iterator[str]:
    """Rows that must not be compared."""
    for dataset in sorted({row.dataset for row in rows}):
        same = [row for row in rows if row.dataset == dataset and row.outcome is Outcome.OK]
        for what, name in (("query samples", "sample"), ("corpora", "corpus"), ("judgements", "qrels")):
            hashes = {getattr(row, f"{name}_sha256") for row in same}
            if len(hashes) > 1:
                yield (
                    f"Rows of {dataset} were measured with {len(hashes)} different {what}: do not compare them; "
                    "measure them again in one suite."
                )
