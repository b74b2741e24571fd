"""Where a paper's tables do not agree with their own figures, with the machines' facts, or with each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from itertools import pairwise

from harness.analysis.published.recompute import Cost, costs, exact_price, lines, machine, per_million
from harness.analysis.published.rounding import Interval, decimal
from harness.analysis.published.sources import Source
from harness.analysis.published.tables import Hardware, Published, Timed, Viable
from harness.pricing.cost import GIB
from harness.pricing.instances import Instance
from harness.pricing.prices import Snapshot


class Kind(str, Enum):
    """What is wrong, in one word."""

    COST = "cost"
    HARDWARE = "hardware"
    INSTANCE = "instance"
    LATENCY = "latency"
    ACCURACY = "accuracy"
    SCORE = "score"


@dataclass(frozen=True)
class Erratum:
    """One contradiction: what stands in which row, what follows from it, and from what that is known.

    ``number`` counts the rows of the table from 1; ``row`` names it.
    """

    kind: Kind
    table: str
    number: int
    row: str
    printed: str
    follows: str
    evidence: str


def errata(published: Published, snapshot: Snapshot) -> tuple[Erratum, ...]:
    """All of them, in the order of ``Kind`` and then of the tables.

    Args:
        published: the tables.
        snapshot: the prices that the paper follows, with the machines' facts.
    """
    every = costs(published, snapshot)
    return (
        *_cost(every, snapshot),
        *_hardware(published, snapshot),
        *_instance(published, snapshot, every),
        *_latency(published),
        *_accuracy(published),
        *_score(published),
    )


def span(interval: Interval, decimals: int) -> str:
    """An interval for people."""
    return f"{decimal(interval.low, decimals)} to {decimal(interval.high, decimals)}"


def _cost(every: tuple[Cost, ...], snapshot: Snapshot) -> Iterator[Erratum]:
    for cost in every:
        if cost.agrees:
            continue
        behind = cost.printed.interval.times(1 / per_million(Fraction(1), cost.usd_per_hour))
        yield Erratum(
            Kind.COST,
            cost.table,
            cost.number,
            _named(cost.system, cost.hardware),
            f"{cost.latency} ms, US$ {cost.printed}",
            f"US$ {decimal(cost.exact, cost.printed.decimals)} ({span(cost.follows, 4)} for all latencies that round"
            f" to {cost.latency} ms)",
            f"{cost.instance_type} costs US$ {float(cost.usd_per_hour):g} an hour ({snapshot.as_of}); the printed cost"
            f" would need {span(behind, 2)} ms",
        )


def _hardware(published: Published, snapshot: Snapshot) -> Iterator[Erratum]:
    for table, number, line in lines(published):
        needs, has = line.hardware, machine(published, line, snapshot)
        wrong = []
        if has.memory_bytes < needs.memory_bytes:
            wrong.append(f"{needs.memory_gib} GiB of memory")
        if has.vcpus < needs.cpus:
            wrong.append(f"{needs.cpus} CPUs")
        if has.gpus < needs.gpus:
            wrong.append(f"{needs.gpus} GPUs")
        if wrong:
            yield Erratum(
                Kind.HARDWARE,
                table,
                number,
                line.system,
                f"needs {' and '.join(wrong)}, on {line.instance_type}",
                f"{line.instance_type} does not provide it",
                f"it has {_facts(has)}{_in_gb(needs, has, published)}",
            )


def _in_gb(needs: Hardware, has: Instance, published: Published) -> str:
    """What another reading of the unit would change, and what the paper's own choice elsewhere says of it."""
    if not needs.memory_gib * 10**9 <= has.memory_bytes < needs.memory_bytes:
        return ""
    as_gb = decimal(Fraction(needs.memory_gib * 10**9, GIB), 1)
    text = f"; read as GB of 10^9 bytes, the need would be {as_gb} GiB and fit"
    for table, _, line in lines(published):
        smaller = line.hardware.within(needs) and line.hardware.memory_gib == needs.memory_gib
        if smaller and line.hardware.gpus == needs.gpus and line.instance_type != has.instance_type:
            return f"{text}, but Table {table} puts {line.hardware} on {line.instance_type}"
    return text


def _instance(published: Published, snapshot: Snapshot, every: tuple[Cost, ...]) -> Iterator[Erratum]:
    """A type that is dearer than another one which the paper uses and which provides the same."""
    used = {line.instance_type: machine(published, line, snapshot) for _, _, line in lines(published)}
    for (table, number, line), cost in zip(lines(published), every, strict=True):
        cheaper = [
            (price, name)
            for name, facts in used.items()
            if _provides(facts, line.hardware) and (price := snapshot.price_of(name)) is not None
        ]
        price, name = min(cheaper, default=(0.0, line.instance_type))
        own = exact_price(published, line, snapshot)
        if not cheaper or name == line.instance_type or Fraction(repr(price)) >= own:
            continue
        where = next(
            f"Table {other} puts {each.system} ({each.hardware}) on it"
            for other, _, each in lines(published)
            if each.instance_type == name
        )
        instead = per_million(cost.latency.value, Fraction(repr(price)))
        yield Erratum(
            Kind.INSTANCE,
            table,
            number,
            _named(line.system, line.hardware),
            f"on {line.instance_type}, US$ {cost.printed}",
            f"on {name}, US$ {decimal(instead, cost.printed.decimals)} if it is as fast there",
            f"{where}; it has {_facts(used[name])} ({used[name].architecture}) for US$ {price:g} an hour, and"
            f" {line.instance_type} ({used[line.instance_type].architecture}) costs US$ {float(own):g}",
        )


def _latency(published: Published) -> Iterator[Erratum]:
    """Table 2 takes latencies of other machines; where Table 3 has the system on no less hardware, the two compare."""
    for source, line, slower in _measured_again(published):
        latency, taken_from = published.latency_of(line)
        on = "" if taken_from is None or taken_from.cpu is None else f", on a machine with {taken_from.cpu} CPUs"
        listed = ", ".join(f"{each.latency_ms} ms ({table}: {each.hardware})" for table, each in slower)
        other = "" if source.table3 == line.system else f" as {source.table3}"
        yield Erratum(
            Kind.LATENCY,
            "2",
            published.table2.index(line) + 1,
            _named(line.system, line.hardware),
            f"US$ {line.cost_usd_per_million}, from {latency} ms",
            f"{slower[0][1].latency_ms} ms or more on no less hardware",
            f"Table 1 has {latency} ms from {source.reference}{on}; Table 3 measures it{other}: {listed}",
        )


def _measured_again(published: Published) -> Iterator[tuple[Source, Viable, list[tuple[str, Timed]]]]:
    """Rows of Table 2 with those rows of Table 3 that have no less hardware and are slower, the fastest first."""
    for source in published.about.table2:
        for line in (each for each in published.table2 if each.system == source.system):
            latency, _ = published.latency_of(line)
            # Table 2 is about MS MARCO, the first of the datasets.
            first = published.about.datasets[0]
            slower = [
                (first.table3, each)
                for each in published.table3[first.name]
                if each.system == source.table3
                and line.hardware.within(each.hardware)
                and each.latency_ms.interval.low > latency.interval.high
            ]
            if slower:
                yield source, line, sorted(slower, key=lambda item: item[1].latency_ms.value)


def _accuracy(published: Published) -> Iterator[Erratum]:
    first = published.about.datasets[0]
    for source in published.about.table2:
        known = published.accuracy(source.table3 or "", first)
        for line in (each for each in published.table2 if each.system == source.system):
            _, row = published.latency_of(line)
            if known is not None and row is not None and known.mrr_at_10 != row.mrr_at_10:
                others = [each for each in published.table1 if each.system == row.system and each is not row]
                same = next((each for each in others if each.mrr_at_10 == known.mrr_at_10), None)
                yield Erratum(
                    Kind.ACCURACY,
                    "2",
                    published.table2.index(line) + 1,
                    line.system,
                    f"latency of a {row.system} with RR@10 {row.mrr_at_10} (Table 1)",
                    f"not the {known.system} of Table 3, whose RR@10 is {known.mrr_at_10}",
                    f"Table 1's {row.mrr_at_10} is from {source.reference}"
                    + (f"; {same.reference} have {same.mrr_at_10}, at {same.latency_ms} ms" if same else ""),
                )


def _score(published: Published) -> Iterator[Erratum]:
    """Table 4 must rank the rows of Table 3, each once, by falling scores."""
    for dataset in published.about.datasets:
        scored, timed = published.table4[dataset.name], published.table3[dataset.name]
        there = [(each.system, each.hardware) for each in scored]
        expected = [(each.system, _as_table_4(each.hardware)) for each in timed]
        for table, has, other, lacks in (
            (dataset.table4, there, dataset.table3, expected),
            (dataset.table3, expected, dataset.table4, there),
        ):
            for number, (system, hardware) in enumerate(has, start=1):
                if has.count((system, hardware)) > lacks.count((system, hardware)):
                    row = f"{system}, {hardware}"
                    yield Erratum(
                        Kind.SCORE, table, number, row, "stands here", f"missing from Table {other}", "one row for each"
                    )
        for rank, (before, after) in enumerate(pairwise(scored), start=1):
            if after.dynascore.value > before.dynascore.value or (before.rank, after.rank) != (rank, rank + 1):
                yield Erratum(
                    Kind.SCORE,
                    dataset.table4,
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
    # A system without GPUs belongs on none of those, however cheap.
    return (
        bool(instance.gpus) == bool(hardware.gpus)
        and instance.gpus >= hardware.gpus
        and instance.vcpus >= hardware.cpus
        and instance.memory_bytes >= hardware.memory_bytes
    )
