"""Published tables as rows of a report: what the paper prints, and a reason wherever it prints nothing."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from fractions import Fraction

from harness.analysis.published.errata import Erratum, errata
from harness.analysis.published.recompute import lines, machine
from harness.analysis.published.rounding import Printed
from harness.analysis.published.sources import Dataset
from harness.analysis.published.tables import Published, Reported, Timed, Viable
from harness.analysis.table import Measurements, Row, Validity
from harness.pricing.cost import GIB
from harness.pricing.prices import Snapshot
from harness.records import Isolation, Outcome
from harness.stats import Estimate

NO_SAMPLES = "no samples: the paper prints the mean alone"
NOT_JUDGED = "published, not measured here: the paper prints no samples, so nothing of the run can be judged"
MEASURES = ("RR@10", "Success@10")


def measurements(published: Published, follows: Snapshot) -> Measurements:
    """Tables 2 and 3 as rows that any prices can be applied to.

    Table 3 is the suite of the paper's name, Table 2 the suite ``<name>-table2``: its latencies were not measured on
    the machines that price them. Measures are fractions (0.187), where the paper prints per cent (18.7).

    Args:
        published: the tables.
        follows: the prices that the paper follows, with the facts of the types that it names.

    Raises:
        FileError: a row names an instance type that has no price there.
    """
    marked: dict[tuple[str, int], list[Erratum]] = defaultdict(list)
    for each in errata(published, follows):
        marked[each.table, each.number].append(each)
    found = [_viable(published, number, line, follows) for number, line in enumerate(published.table2, start=1)]
    for dataset in published.about.datasets:
        timed = enumerate(published.table3[dataset.name], start=1)
        found += [_timed(published, dataset, number, line, follows) for number, line in timed]
    places = [(table, number) for table, number, _ in lines(published)]
    noted = (_with_errata(row, marked[place]) for row, place in zip(found, places, strict=True))
    decimals = published.about.decimals
    steps = {"RR@10": decimals["mrr_at_10"], "Success@10": decimals["success_at_10"]}  # of a per cent
    rounded_to = {name: float(Fraction(1, 100 * 10**digits)) for name, digits in steps.items()}
    return Measurements(tuple(noted), MEASURES, rounded_to=rounded_to)


def _timed(published: Published, dataset: Dataset, number: int, line: Timed, follows: Snapshot) -> Row:
    """A row of Table 3."""
    accuracy, protocol = published.accuracy(line.system, dataset), published.about.protocol
    missing = Estimate(None, reason="Table 3c does not have it")
    return _row(
        published,
        line,
        follows,
        suite=published.about.name,
        key=f"{published.about.name}/table{dataset.table3}/{number}",
        dataset=dataset,
        latency=line.latency_ms,
        measures={
            "RR@10": _share(accuracy.mrr_at_10) if accuracy else missing,
            "Success@10": _share(accuracy.success_at_10) if accuracy else missing,
        },
        queries=protocol.queries,
        trials=protocol.trials,
    )


def _viable(published: Published, number: int, line: Viable, follows: Snapshot) -> Row:
    """A row of Table 2, with the latency, accuracy and index of its row of Table 1."""
    latency, taken = published.latency_of(line)
    assert taken is not None, "every latency of Table 2 is from Table 1"
    return _row(
        published,
        line,
        follows,
        suite=f"{published.about.name}-table2",
        key=f"{published.about.name}/table2/{number}",
        dataset=published.about.datasets[0],
        latency=latency,
        measures={"RR@10": _share(taken.mrr_at_10), "Success@10": Estimate(None, reason="Table 1 does not have it")},
        taken=taken,
    )


def _row(
    published: Published,
    line: Viable | Timed,
    follows: Snapshot,
    *,
    suite: str,
    key: str,
    dataset: Dataset,
    latency: Printed,
    measures: dict[str, Estimate],
    taken: Reported | None = None,
    queries: int | None = None,
    trials: int | None = None,
) -> Row:
    unknown = Estimate(None, reason=NO_SAMPLES)
    return Row(
        suite=suite,
        system=line.system,
        dataset=dataset.name,
        scenario=published.about.protocol.scenario,
        profile=line.hardware.profile,
        isolation=Isolation.PUBLISHED,
        outcome=Outcome.OK,
        detail=None,
        validity=Validity.UNKNOWN,
        key=key,
        started_at=None,
        machine=None,
        cpus=line.cpu,
        memory_limit_bytes=line.hardware.memory_bytes,
        gpus=line.gpu,
        price=None,
        price_note=None,
        k=published.about.protocol.k,
        sample_sha256=None,
        corpus_sha256=None,
        qrels_sha256=None,
        published_type=line.instance_type,
        gpu_memory_bytes=machine(published, line, follows).gpu_memory_bytes if line.gpu else None,
        queries=queries,
        trials=trials,
        measures=measures,
        latency_mean_s=Estimate(float(latency.value / 1000)),
        p50_s=unknown,
        p95_s=unknown,
        p99_s=unknown,
        at_most_s=dict.fromkeys(("p50", "p95", "p99"), unknown),
        throughput_qps=unknown,
        index_bytes=None if taken is None or taken.index_gib is None else int(taken.index_gib.value) * GIB,
        keys=(key,),
        notes=(NOT_JUDGED,) if taken is None else (NOT_JUDGED, _elsewhere(taken)),
    )


def _share(percent: Printed) -> Estimate:
    return Estimate(float(Fraction(percent.value, 100)))


def _elsewhere(taken: Reported) -> str:
    on = "" if taken.cpu is None else f", on a machine with {taken.cpu} CPUs"
    return f"the latency was not measured on this type: Table 1 has it from {taken.reference}{on}"


def _with_errata(row: Row, wrong: list[Erratum]) -> Row:
    told = (f"erratum ({each.kind.value}): {each.printed}; {each.follows}; {each.evidence}" for each in wrong)
    return replace(row, notes=(*row.notes, *told))
