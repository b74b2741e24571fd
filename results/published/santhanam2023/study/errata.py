"""Find contradictions between the paper's tables, their own figures, its text, and the facts of the machines."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise

from harness.analysis.published import (
    Erratum,
    Hardware,
    LatencySource,
    PaperDataset,
    Published,
    TimedSystem,
    Viable,
)
from harness.pricing.cost import GIB
from harness.pricing.instances import Instance
from harness.pricing.prices import Snapshot

from .costs import Cost, Interval, costs, decimal, fraction, interval, per_million
from .statements import find_statements


def find_errata(published: Published, snapshot: Snapshot) -> tuple[Erratum, ...]:
    """Find all contradictions: by kind, then in the order of the tables.

    Args:
        published: the tables.
        snapshot: the prices that the paper follows, with the machines' facts.
    """
    recomputed = costs(published, snapshot)
    return (
        *_cost(recomputed, snapshot),
        *_hardware(published, snapshot),
        *_instance(published, snapshot, recomputed),
        *_latency(published),
        *_accuracy(published),
        *_score(published),
        *find_statements(published, snapshot),
    )


def as_csv(errata: tuple[Erratum, ...]) -> str:
    """Write errata as the file ``errata.csv`` that the general package reads."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(Erratum.model_fields)
    writer.writerows([getattr(erratum, column) for column in Erratum.model_fields] for erratum in errata)
    return stream.getvalue()


def _erratum(kind: str, table: str, number: int, row: str, printed: str, follows: str, evidence: str) -> Erratum:
    return Erratum.model_construct(
        kind=kind, table=table, number=number, row=row, printed=printed, follows=follows, evidence=evidence
    )


def _span(interval: Interval, decimals: int) -> str:
    return f"{decimal(interval.low, decimals)} to {decimal(interval.high, decimals)}"


def _cost(recomputed: tuple[Cost, ...], snapshot: Snapshot) -> Iterator[Erratum]:
    """Find costs that do not follow from the latency and the instance's price."""
    for cost in recomputed:
        if cost.agrees:
            continue
        needed = interval(cost.printed).times(1 / per_million(Fraction(1), cost.usd_per_hour))
        yield _erratum(
            "cost",
            cost.table,
            cost.number,
            _named(cost.system, cost.hardware),
            f"{cost.latency} ms, US$ {cost.printed}",
            f"US$ {decimal(cost.exact, cost.printed.decimals)} ({_span(cost.follows, 4)} for all latencies that round"
            f" to {cost.latency} ms)",
            f"{cost.instance_type} costs US$ {float(cost.usd_per_hour):g} an hour ({snapshot.as_of}); the printed cost"
            f" would need {_span(needed, 2)} ms",
        )


def _hardware(published: Published, snapshot: Snapshot) -> Iterator[Erratum]:
    """Find instance types with less than the system is said to need."""
    for table, number, line in published.lines():
        needs, has = line.hardware, published.instance(line, snapshot)
        lacking = []
        if has.memory_bytes < needs.memory_bytes:
            lacking.append(f"{needs.memory_gib} GiB of memory")
        if has.vcpus < needs.cpus:
            lacking.append(f"{needs.cpus} CPUs")
        if has.gpus < needs.gpus:
            lacking.append(f"{needs.gpus} GPUs")
        if lacking:
            yield _erratum(
                "hardware",
                table,
                number,
                line.system,
                f"needs {' and '.join(lacking)}, on {line.instance_type}",
                f"{line.instance_type} does not provide it",
                f"it has {_facts(has)}{_in_gb(needs, has, published)}",
            )


def _in_gb(needs: Hardware, has: Instance, published: Published) -> str:
    """Say whether GB of 10^9 bytes would fit, and which of the paper's own rows contradicts that reading."""
    if not needs.memory_gib * 10**9 <= has.memory_bytes < needs.memory_bytes:
        return ""
    as_gb = decimal(Fraction(needs.memory_gib * 10**9, GIB), 1)
    text = f"; read as GB of 10^9 bytes, the need would be {as_gb} GiB and fit"
    for table, _, line in published.lines():
        smaller = line.hardware.within(needs) and line.hardware.memory_gib == needs.memory_gib
        if smaller and line.hardware.gpus == needs.gpus and line.instance_type != has.instance_type:
            return f"{text}, but Table {table} puts {line.hardware} on {line.instance_type}"
    return text


def _instance(published: Published, snapshot: Snapshot, recomputed: tuple[Cost, ...]) -> Iterator[Erratum]:
    """Find types that cost more than another of the paper's types with the same hardware."""
    lines = published.lines()
    types = {line.instance_type: published.instance(line, snapshot) for _, _, line in lines}
    for (table, number, line), cost in zip(lines, recomputed, strict=True):
        offers = [
            (price, name)
            for name, facts in types.items()
            if _provides(facts, line.hardware) and (price := snapshot.price_of(name)) is not None
        ]
        price, name = min(offers, default=(0.0, line.instance_type))
        if not offers or name == line.instance_type or fraction(price) >= cost.usd_per_hour:
            continue
        where = next(
            f"Table {other} puts {row.system} ({row.hardware}) on it"
            for other, _, row in lines
            if row.instance_type == name
        )
        cheaper = per_million(cost.latency.value, fraction(price))
        yield _erratum(
            "instance",
            table,
            number,
            _named(line.system, line.hardware),
            f"on {line.instance_type}, US$ {cost.printed}",
            f"on {name}, US$ {decimal(cheaper, cost.printed.decimals)} if it is as fast there",
            f"{where}; it has {_facts(types[name])} ({types[name].architecture}) for US$ {price:g} an hour, and"
            f" {line.instance_type} ({types[line.instance_type].architecture}) costs US$ {float(cost.usd_per_hour):g}",
        )


def _latency(published: Published) -> Iterator[Erratum]:
    """Find latencies of Table 2 that Table 3 measured slower on no less hardware."""
    for source, line, slower in _measured_again(published):
        latency, taken_from = published.latency_of(line)
        on = "" if taken_from is None or taken_from.cpu is None else f", on a machine with {taken_from.cpu} CPUs"
        if source.reference in published.about.one_thread:
            on += ", of one CPU thread (section 2.2)"
        listed = ", ".join(f"{row.latency_ms} ms ({table}: {row.hardware})" for table, row in slower)
        other = "" if source.table3 == line.system else f" as {source.table3}"
        yield _erratum(
            "latency",
            "2",
            published.table2.index(line) + 1,
            _named(line.system, line.hardware),
            f"US$ {line.cost_usd_per_million}, from {latency} ms",
            f"{slower[0][1].latency_ms} ms or more on no less hardware",
            f"Table 1 has {latency} ms from {source.reference}{on}; Table 3 measures it{other}: {listed}",
        )


def _measured_again(published: Published) -> Iterator[tuple[LatencySource, Viable, list[tuple[str, TimedSystem]]]]:
    """Yield rows of Table 2 with the slower rows of Table 3 on no less hardware, the fastest first."""
    first = published.about.datasets[0]  # Table 2 is about MS MARCO, the first of the datasets.
    for source, line in _sources(published):
        latency, _ = published.latency_of(line)
        slower = [
            (first.table3, row)
            for row in published.table3[first.name]
            if row.system == source.table3
            and line.hardware.within(row.hardware)
            and interval(row.latency_ms).low > interval(latency).high
        ]
        if slower:
            yield source, line, sorted(slower, key=lambda item: item[1].latency_ms.value)


def _sources(published: Published) -> Iterator[tuple[LatencySource, Viable]]:
    for source in published.about.table2:
        for line in published.table2:
            if line.system == source.system:
                yield source, line


def _accuracy(published: Published) -> Iterator[Erratum]:
    """Find latencies of Table 2 that belong to another accuracy than Table 3's."""
    for source, line in _sources(published):
        accuracy = published.accuracy(source.table3 or "", published.about.datasets[0])
        _, row = published.latency_of(line)
        if accuracy is None or row is None or accuracy.mrr_at_10 == row.mrr_at_10:
            continue
        others = [other for other in published.table1 if other.system == row.system and other is not row]
        same = next((other for other in others if other.mrr_at_10 == accuracy.mrr_at_10), None)
        yield _erratum(
            "accuracy",
            "2",
            published.table2.index(line) + 1,
            line.system,
            f"latency of a {row.system} with RR@10 {row.mrr_at_10} (Table 1)",
            f"not the {accuracy.system} of Table 3, whose RR@10 is {accuracy.mrr_at_10}",
            f"Table 1's {row.mrr_at_10} is from {source.reference}"
            + (f"; {same.reference} have {same.mrr_at_10}, at {same.latency_ms} ms" if same else ""),
        )


def _score(published: Published) -> Iterator[Erratum]:
    """Find rows of a table of scores that do not rank Table 3's rows once, by falling scores."""
    for dataset in published.about.datasets:
        for table in dataset.scores:
            yield from _score_table(published, dataset, table.number)


def _score_table(published: Published, dataset: PaperDataset, number_of_table: str) -> Iterator[Erratum]:
    scored = published.scores[number_of_table]
    ranked = [(row.system, row.hardware) for row in scored]
    timed = [(row.system, _as_table_4(row.hardware)) for row in published.table3[dataset.name]]
    for table, rows, other, counterparts in (
        (number_of_table, ranked, dataset.table3, timed),
        (dataset.table3, timed, number_of_table, ranked),
    ):
        for number, (system, hardware) in enumerate(rows, start=1):
            if rows.count((system, hardware)) > counterparts.count((system, hardware)):
                row = f"{system}, {hardware}"
                yield _erratum(
                    "score", table, number, row, "stands here", f"missing from Table {other}", "one row for each"
                )
    for rank, (before, after) in enumerate(pairwise(scored), start=1):
        if after.dynascore.value > before.dynascore.value or (before.rank, after.rank) != (rank, rank + 1):
            yield _erratum(
                "score",
                number_of_table,
                rank + 1,
                f"{after.system}, {after.hardware}",
                f"rank {after.rank}, {after.dynascore}",
                f"not behind rank {before.rank}, {before.dynascore}",
                "ranks go by falling Dynascores",
            )


def _as_table_4(hardware: Hardware) -> str:
    gpus = f"{hardware.gpus} GPU, " if hardware.gpus else ""
    return f"{gpus}{hardware.cpus} CPU, {hardware.memory_gib} GB memory"


def _named(system: str, hardware: Hardware) -> str:
    return f"{system}, {hardware}"


def _facts(instance: Instance) -> str:
    gpus = f"{instance.gpus} GPUs, " if instance.gpus > 1 else "1 GPU, " if instance.gpus else ""
    return f"{gpus}{instance.vcpus} vCPU{'s' if instance.vcpus > 1 else ''}, {instance.memory_bytes / GIB:g} GiB"


def _provides(instance: Instance, hardware: Hardware) -> bool:
    # A system without GPUs never belongs on a machine with GPUs, however cheap.
    return (
        bool(instance.gpus) == bool(hardware.gpus)
        and instance.gpus >= hardware.gpus
        and instance.vcpus >= hardware.cpus
        and instance.memory_bytes >= hardware.memory_bytes
    )
