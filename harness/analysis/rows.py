"""Build rows from stored jobs: one for each cell, isolation and origin, without prices."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from harness.analysis import axes, cell_summary, pooling, rejudge, validity
from harness.analysis.cell_summary import CellSummary
from harness.analysis.evaluate_job import JobEvaluation, JobEvaluator
from harness.analysis.pooling import Pool
from harness.analysis.row_cache import CellRow, RowSet, cell_stamp
from harness.analysis.table import (
    ClientUse,
    IndexFigures,
    Judged,
    LoadPoint,
    Machine,
    Overhead,
    Resources,
    Row,
    Table,
    Validity,
)
from harness.analysis.validity import counter_checks, machine_speed
from harness.driver.records import Outcome, Scalar
from harness.errors import HarnessError
from harness.estimate import Estimate
from harness.evaluation import evaluate, measure_names, per_query
from harness.evaluation.evaluate_runs import measure_notes
from harness.evaluation.per_query import PerQuery
from harness.results import attempts
from harness.results.attempts import CellKey
from harness.results.reader import StoredJob
from harness.results.schema import (
    NULL_SERVICE,
    NULL_SYSTEM,
    NULL_SYSTEMS,
    Cell,
    Environment,
    IndexFacts,
    Result,
    ResultSpec,
    is_service,
    measurements,
)
from harness.untrusted import ForeignText


def build_rows(
    jobs: Iterable[StoredJob],
    evaluator: JobEvaluator,
    *,
    keys: Collection[str] | None = None,
    cached: Mapping[str, CellRow] | None = None,
) -> RowSet:
    """Build the unpriced table of stored jobs.

    :func:`harness.results.attempts.choose` chooses among several attempts, and :func:`harness.analysis.pooling.pool`
    chooses the jobs of a cell to pool.  The null system becomes a note, or a row if it is the only system.  An
    unreadable file affects only the numbers of its cell, and the row says why.

    Args:
        jobs: stored jobs, in any order.
        evaluator: scores their runs.
        keys: jobs to show in their cells; the other cells choose as usual.
        cached: rows built earlier with the same evaluator, by stamp; not used with ``keys``.

    Raises:
        UsageError: other qrels, or queries to leave out, change nothing.
    """
    stored = list(jobs)
    levels = _canary_levels(stored)
    cells = attempts.jobs_by_cell(stored)
    null = _null_cells(cells)
    built: list[tuple[Row, CellRow]] = []
    for key, tries in cells.items():
        if key in null:
            continue
        pool, stamp = pooling.pool(tries, keys), cell_stamp(tries)
        cell = (cached or {}).get(stamp or "") or replace(build_row(pool, len(tries), evaluator), stamp=stamp)
        built.append((_with_verdict(cell, pool, levels[key.origin]), cell))
    built.sort(key=lambda pair: _reading_order(pair[0]))
    rows = tuple(row for row, _ in built)
    if evaluator.override is not None:
        rejudge.check((row.judged.rejudged for row in rows), evaluator.override)
    overhead = sorted(
        (_overhead(pooling.pool(cells[key], keys), levels[key.origin]) for key in null),
        key=lambda item: (item.suite, item.profile, item.isolation.name, item.origin or "", item.key),
    )
    rows = tuple(_with_overhead(row, overhead) for row in rows)
    table = Table(rows, tuple(map(str, evaluator.measures)), overhead=tuple(overhead))
    return RowSet(table, tuple(cell for _, cell in built))


def build_row(pool: Pool, tries: int, evaluator: JobEvaluator) -> CellRow:
    """Build a cell's row before its verdict, from the cell's own files; a failed cell has no figures.

    Args:
        pool: its pooled jobs.
        tries: the number of stored jobs of the cell.
        evaluator: scores its run.
    """
    row = _outline(pool, tries)
    if pool.outcome is not Outcome.OK:
        return CellRow(row)
    summary = cell_summary.summarise(pool.jobs)
    row, values = _with_measures(_with_latency(row, summary), summary, pool.lead, evaluator)
    return CellRow(row, None, values, summary.facts, summary.disagreements)


def verdicts(
    jobs: Iterable[StoredJob], keys: Collection[str] | None = None
) -> dict[tuple[Cell, str], validity.Assessment]:
    """Judge how far each cell's numbers can be trusted, by isolation, without scoring or comparing its runs.

    Args:
        jobs: stored jobs, in any order.
        keys: as for :func:`build_rows`.
    """
    stored = list(jobs)
    levels = _canary_levels(stored)
    found = {}
    for key, tries in attempts.jobs_by_cell(stored).items():
        pool = pooling.pool(tries, keys)
        facts = cell_summary.summarise(pool.jobs, rankings=False).facts if pool.outcome is Outcome.OK else None
        found[key.cell, key.isolation] = cell_summary.assess(pool, facts, None, levels[key.origin])
    return found


def _null_cells(cells: Collection[CellKey]) -> set[CellKey]:
    """Return the null system's cells, unless it is the only system."""
    null = {key for key in cells if key.cell.system in NULL_SYSTEMS}
    return null if len(null) < len(cells) else set()


def _canary_levels(jobs: Iterable[StoredJob]) -> dict[str | None, machine_speed.Levels]:
    """Return the canary's levels by origin: equal machines of two origins count as two."""
    by_origin = axes.grouped(jobs, lambda job: job.origin)
    return {origin: machine_speed.levels(job.result for job in of_origin) for origin, of_origin in by_origin.items()}


def _reading_order(row: Row) -> tuple[Any, ...]:
    hardware = (row.dataset, row.cpus, row.memory_bytes, row.gpus, row.profile)
    return (*hardware, row.system, row.isolation.name, row.suite, row.scenario, row.origin or "")


def _with_verdict(cell: CellRow, pool: Pool, levels: machine_speed.Levels) -> Row:
    verdict = cell_summary.assess(pool, cell.facts, cell.disagreements, levels)
    lead = pool.lead.result
    build = validity.assess_build(lead.index if pool.outcome is Outcome.OK else None, lead.spec.cell, levels)
    return replace(
        cell.row,
        index=replace(cell.row.index, validity=build.validity, findings=build.findings),
        validity=verdict.validity,
        transient=verdict.transient,
        findings=verdict.findings,
        notes=(*cell.row.notes, *verdict.reasons),
    )


def _outline(pool: Pool, tries: int) -> Row:
    """Fill in the fields that need neither samples nor a run; a failed cell has no others."""
    result, done = pool.lead.result, pool.outcome is Outcome.OK
    spec, environment = result.spec, result.environment
    results, index = (pool.results, result.index) if done else ((), None)
    treatments = {one.page_cache for one in results}
    apart = [one.observed.placement.apart for one in results if one.observed.placement is not None]
    return Row(
        suite=spec.cell.suite,
        system=spec.cell.system,
        dataset=spec.cell.dataset,
        scenario=spec.cell.scenario,
        profile=spec.cell.profile,
        isolation=result.isolation,
        outcome=pool.outcome,
        detail=pool.detail,
        validity=Validity.UNKNOWN,  # until its verdict
        key=result.key,
        keys=tuple(job.result.key for job in pool.jobs),
        jobs=len(pool.jobs),
        started_at=result.started_at,
        machine=None if result.isolation.attached else _machine(environment),  # the client's is another
        cpus=spec.envelope.cpus,
        memory_limit_bytes=spec.envelope.memory_bytes,
        nominal_memory_bytes=result.provenance.nominal_memory_bytes,
        gpus=spec.envelope.gpus,
        k=spec.k,
        sample_sha256=spec.sample_sha256,
        corpus_sha256=spec.corpus_sha256,
        qrels_sha256=spec.qrels_sha256,
        resources=Resources() if result.isolation.attached else _resources(results),
        index=replace(_index(index), documents=result.provenance.corpus_documents),
        data_faults=result.provenance.data_faults,
        latency_target_s=spec.scenario_params.latency_target_s,
        latency_percentile=spec.scenario_params.latency_percentile,
        one_pass_warmup=result.answers.warmup_done if done and spec.warmup_cap is None else None,
        page_cache=treatments.pop() if len(treatments) == 1 else None,
        harness_apart=all(apart) if apart else None,
        attempts=tries,
        backend=_backend(result),
        document_backend=_joined(_by_owner(spec.params, "document_backend")),
        stand_in=result.provenance.stand_in,
        models=result.provenance.models or (),
        pinned_at_first_use=result.provenance.pinned_at_first_use,
        sweep=result.provenance.sweep,
        client=_client(results),
        load=tuple(
            LoadPoint(probe.rate_qps, probe.latency_s, probe.passed, probe.streams)
            for measured in measurements(results)
            for probe in measured.probes
        ),
        token_model=_token_model(spec),
        origin=pool.lead.origin,
        measured_again=pool.measured_again,
        notes=pool.notes,
    )


def _client(results: Sequence[Result]) -> ClientUse | None:
    """Return what the client of a service used; None: the engine was in the driver's process."""
    if not any(is_service(one) for one in results):
        return None
    if results[0].spec.cell.scenario == "mixed":
        return ClientUse()  # it sends updates too
    used_s = [one.observed.counters.client_cpu_s for one in results]
    queries = sum(one.spec.timed_queries * one.answers.trials_finished for one in results)
    known = [seconds for seconds in used_s if seconds is not None]
    return ClientUse(cpu_per_query_s=sum(known) / queries if queries and len(known) == len(used_s) else None)


def _resources(results: Sequence[Result]) -> Resources:
    pooled = {}
    for figure in fields(Resources):
        if figure.metadata:
            values = [_fact(one, figure.metadata["path"]) for one in results]
            known = [value for value in values if value is not None]
            pooled[figure.name] = figure.metadata["rule"](known) if known else None
    energies = [counter_checks.energy_j(one) for one in results]
    whole = energies and None not in energies
    return Resources(**pooled, gpu_energy_j=sum(filter(None, energies)) if whole else None)


def _fact(result: Result, path: str) -> Any:
    """Return a fact of a result, ``None`` if its record is missing."""
    return functools.reduce(lambda part, name: None if part is None else getattr(part, name), path.split("."), result)


def _index(index: IndexFacts | None) -> IndexFigures:
    if index is None:
        return IndexFigures()
    parts = (index, *index.components.values())
    return IndexFigures(
        size_bytes=index.index_bytes,
        build_s=index.build_s,
        cpu_s=index.observed.counters.cpu_s,
        client_cpu_s=index.observed.counters.client_cpu_s,
        envelope=index.envelope if len({part.envelope for part in parts}) == 1 else None,
        machine=_build_machine([part.environment for part in parts]),
        parts_s={name: part.build_s for name, part in index.components.items()},
    )


def _token_model(spec: ResultSpec) -> str | None:
    """Return the language model that the system or a component names for token prices (``token_prices``)."""
    named = (value for name, value in sorted(spec.params.items()) if name.rpartition(".")[2] == "token_prices")
    return next((value for value in named if isinstance(value, str) and value), None)


def _backend(result: Result) -> ForeignText | None:
    """Name the backend that encoded queries, for the system or each component; PyTorch is the unnamed default.

    OpenVINO computes in another precision than its backend's name says if the CPU lacks the instructions.
    """
    named = _by_owner(result.spec.params, "backend")
    libraries = result.measured.libraries if result.measured else {}
    ran = _by_owner(libraries, "torch")
    found = {**dict.fromkeys(ran, "torch"), **named}
    for owner, precision in _by_owner(libraries, "openvino_precision").items():
        if "bf16" in found.get(owner, "") and precision == "f32":
            found[owner] += " in float32"
    return _joined(found)


def _by_owner(facts: Mapping[str, Scalar | ForeignText], name: str) -> dict[str, str]:
    """Return a fact of the system (key ``""``), or of each component by name."""
    split = ((key.rpartition("."), value) for key, value in facts.items())
    return {owner: str(value) for (owner, _, last), value in split if last == name}


def _joined(by_owner: Mapping[str, str]) -> ForeignText | None:
    text = ", ".join(f"{owner}: {fact}" if owner else fact for owner, fact in sorted(by_owner.items()))
    return ForeignText(text) if text else None


def _machine(environment: Environment) -> Machine:
    return Machine(**{item.name: getattr(environment, item.name) for item in fields(Machine)})


def _build_machine(environments: Sequence[Environment | None]) -> Machine | None:
    """Return the machine of an index and its components; None if it is unknown or differs."""
    known = [environment for environment in environments if environment is not None]
    models = {(each.cpu_model, each.instance_type, each.gpu_models) for each in known}
    return _machine(known[0]) if len(known) == len(environments) and len(models) == 1 else None


def _with_latency(row: Row, summary: CellSummary) -> Row:
    return replace(
        row,
        queries=summary.queries,
        trials=summary.trials,
        latency=summary.latency,
        throughput_qps=summary.throughput_qps,
        cpu=summary.cpu,
        counts=summary.counts,
        failed_queries=summary.failed,
        updates=summary.updates,
        notes=(*row.notes, *summary.notes),
    )


def _with_measures(row: Row, summary: CellSummary, lead: StoredJob, evaluator: JobEvaluator) -> tuple[Row, PerQuery]:
    evaluation = None
    try:
        evaluation = evaluator.evaluate(lead)
    except HarnessError as error:
        missing = Estimate(None, reason=f"the run cannot be judged: {error}")
        row = replace(row, measures=dict.fromkeys(map(str, evaluator.measures), missing))
    else:
        row = _with_evaluation(row, evaluation, evaluator.measures)
    values = per_query.collect(
        row.per_query_key,
        summary.by_query_s,
        summary.quantiles_s,
        evaluation.judged.per_query if evaluation else {},
    )
    return row, values


def _with_evaluation(row: Row, evaluation: JobEvaluation, measures: Sequence[Any]) -> Row:
    judged, unjudged, basis = evaluation.judged, evaluation.unjudged, evaluation.basis
    estimates = {name: evaluate.estimate(judged, name) for name in judged.values}
    estimates |= {name: distance.estimate for name, distance in evaluation.distances.items()}
    deep = [str(measure) for measure in measures if measure_names.looks_deeper(measure, row.k)]
    of_distances = dict.fromkeys(distance.note for distance in evaluation.distances.values() if distance.note)
    return replace(
        row,
        measures={name: estimates[name] for name in map(str, measures)},
        judged=Judged(
            queries=judged.queries,
            unjudged=judged.unjudged,
            unjudged_depth=unjudged.depth if unjudged else None,
            unjudged_share=unjudged.share if unjudged else None,
            rejudged=basis.changes,
        ),
        qrels_sha256=basis.sha256 or row.qrels_sha256,
        first_stage=evaluation.first_stage,
        notes=(*row.notes, *basis.notes, *evaluation.notes, *measure_notes(judged, deep, row.k), *of_distances),
    )


def _with_overhead(row: Row, overhead: Iterable[Overhead]) -> Row:
    """Return a row that knows what is not the system's own, where a null system was measured too.

    That is harness's part of its CPU time, or a client's part of a service's latency.
    """
    where = (row.suite, row.profile, row.isolation, row.origin)
    nulls = [null for null in overhead if (null.suite, null.profile, null.isolation, null.origin) == where]
    if row.client is not None:
        latencies = (null.latency.mean_s.value for null in nulls if null.system == NULL_SERVICE)
        return replace(row, client=replace(row.client, null_s=next(filter(None, latencies), None)))
    if row.scenario != "single_stream":
        return row
    used = [null.cpu for null in nulls if null.system == NULL_SYSTEM]
    seconds = (cpu.per_query_s.value for cpu in used if cpu.per_query_s.value is not None)
    counts = (cpu.instructions.value for cpu in used if cpu.instructions.value is not None)
    cpu = replace(row.cpu, driver_s=next(seconds, None), driver_instructions=next(counts, None))
    return replace(row, cpu=cpu)


def _overhead(pool: Pool, levels: machine_speed.Levels) -> Overhead:
    """Return the null system's figures: harness's own share of every latency."""
    cell = CellRow(_outline(pool, 1))
    if pool.outcome is Outcome.OK:
        summary = cell_summary.summarise(pool.jobs)
        cell = CellRow(_with_latency(cell.row, summary), facts=summary.facts, disagreements=summary.disagreements)
    row = _with_verdict(cell, pool, levels)
    shared = {item.name: getattr(row, item.name) for item in fields(Overhead) if item.name != "reasons"}
    return Overhead(**shared, reasons=tuple(finding.text for finding in row.findings))


def by_process(
    jobs: Iterable[StoredJob], rows: Sequence[Row], priced: Callable[[Table], Table]
) -> dict[str, tuple[Row, ...]]:
    """Return the rows of each process alone, by the pooled row's :attr:`Row.per_query_key`.

    Args:
        jobs: all jobs of the rows' folder.
        rows: pooled rows.
        priced: adds prices to a table.
    """
    stored, none = list(jobs), JobEvaluator(())
    found: dict[str, list[Row]] = {row.per_query_key: [] for row in rows}
    for number in range(max((len(row.keys) for row in rows), default=0)):
        wanted = {(row.origin, row.keys[number]): row.per_query_key for row in rows if number < len(row.keys)}
        # The null system's CPU time is taken from each row's.
        chosen = [
            job
            for job in stored
            if (job.origin, job.result.key) in wanted or job.result.spec.cell.system in NULL_SYSTEMS
        ]
        for row in priced(build_rows(chosen, none).table).rows:
            if (pooled := wanted.get((row.origin, row.key))) is not None:
                found[pooled].append(row)
    return {key: tuple(alone) for key, alone in found.items()}
