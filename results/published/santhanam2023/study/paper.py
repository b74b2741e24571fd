"""Write the paper's tables in its own shape, with the errata, the recomputed figures and later prices."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from harness.analysis.published import (
    Accuracy,
    Erratum,
    Hardware,
    PaperDataset,
    Printed,
    Published,
    TimedSystem,
)
from harness.errors import UnknownName
from harness.pricing.offers import Offer
from harness.pricing.prices import Snapshot
from harness.report.document import MISSING, Escape, Section
from harness.report.latex import HEAD

from . import further, paper_records
from .costs import Rent, RepricedCost, costs, decimal, rents, reprice
from .dialects import LATEX, MARKDOWN, Dialect, grid_section
from .errata import find_errata
from .scores import RecomputedScores, recomputed_scores

FORMATS = ("md", "csv", "json", "latex")
_COST = "US$ per million queries = mean latency x US$ per hour / 3600 x 1,000,000"


def render(published: Published, follows: Snapshot, now: Snapshot, format: str) -> str:
    """Write a paper's tables.

    Args:
        published: the tables.
        follows: the prices that the paper follows.
        now: the prices to compare with.
        format: one of ``FORMATS``.

    Raises:
        UnknownName: there is no such format.
        FileError: a row names an instance type without price, or no row of Table 1.
    """
    if format == "csv":
        return paper_records.as_csv(published, follows, now)
    if format == "json":
        return paper_records.as_json(published, follows, now)
    dialects = {"md": MARKDOWN, "latex": LATEX}
    if format not in dialects:
        raise UnknownName("format", format, FORMATS)
    return (HEAD if format == "latex" else "") + _written(published, follows, now, dialects[format])


def _written(published: Published, follows: Snapshot, now: Snapshot, dialect: Dialect) -> str:
    parts = (_source(published, dialect.escape), *sections(published, follows, now, dialect.escape))
    return "\n\n".join(dialect.write(part, 1 if part is parts[0] else 2) for part in parts) + "\n"


def sections(published: Published, follows: Snapshot, now: Snapshot, escape: Escape) -> tuple[Section, ...]:
    """List Tables 1 to 3, 5 and 6, the errata, recomputed costs and scores, and costs at later prices."""
    wrong = find_errata(published, follows)
    return (
        *tables(published, wrong, escape),
        listed(wrong, escape),
        recomputed(published, follows, escape),
        *scores(published, follows, wrong, escape),
        rented(published, follows, now, escape),
        repriced(published, follows, now, escape),
    )


def recomputed(published: Published, follows: Snapshot, escape: Escape) -> Section:
    """Show every cost beside the one that follows from its latency and its instance's price."""
    every = costs(published, follows)
    return grid_section(
        "Costs, made again",
        (
            f"Prices: {escape(str(follows))}. {escape(_COST)}. A latency printed as 19 ms stands for"
            " 18.5 to 19.5 ms, so what follows is an interval; a cost agrees if it rounds to what is"
            " printed for some latency of that interval.",
            f"{sum(cost.agrees for cost in every)} of {len(every)} agree.",
        ),
        ("table", "row", "system", "latency, ms", "instance type", "US$/h", "printed", "made again", "from", "to", ""),
        (False, True, False, True, False, True, True, True, True, True, False),
        tuple(
            (
                escape(cost.table),
                str(cost.number),
                escape(cost.system),
                str(cost.latency),
                escape(cost.instance_type),
                f"{float(cost.usd_per_hour):g}",
                str(cost.printed),
                decimal(cost.exact, 2),
                decimal(cost.follows.low, 3),
                decimal(cost.follows.high, 3),
                "agrees" if cost.agrees else "differs",
            )
            for cost in every
        ),
        keys=3,
    )


def rented(published: Published, follows: Snapshot, now: Snapshot, escape: Escape) -> Section:
    """Show the price per hour of each hardware at both dates."""
    known = rents(published, follows, now)
    return grid_section(
        f"The same hardware, {follows.as_of} and {now.as_of}",
        (
            f"{escape('US$ per hour')}, {escape(str(follows))} and {escape(str(now))}. Cheapest:"
            " the cheapest type that provides what the hardware asks for; without GPUs never one that has some,"
            " with GPUs never one whose GPUs have"
            " less memory than the GPUs of the paper's type. Burstable and bare-metal types are left out.",
            *_gone(known, escape),
        ),
        ("hardware", "paper's type", "then", "now", "cheapest then", "now", "x86_64 then", "now"),
        (False, False, True, True, False, False, False, False),
        tuple(
            (
                escape(str(rent.hardware)),
                escape(rent.instance_type),
                _hourly(rent.then),
                _same(rent, follows, now, escape),
                _offer(rent.cheapest_then, escape),
                _offer(rent.cheapest, escape),
                _offer(rent.cheapest_x86_then, escape),
                _offer(rent.cheapest_x86, escape),
            )
            for rent in known
        ),
        keys=2,
    )


def repriced(published: Published, follows: Snapshot, now: Snapshot, escape: Escape) -> Section:
    """Show every cost with the rents of the later date."""
    return grid_section(
        f"Costs, {follows.as_of} to {now.as_of}",
        (
            f"{escape('US$ per million queries')} with the prices of {escape(str(now))}. On another type than"
            " the paper's the type is substituted and the latency not re-measured: it is the paper's throughout."
            " Rank: by cost within"
            " its table, the printed one and that on the cheapest types.",
        ),
        ("table", "row", "system", "printed", "same type", "cheapest type", "cost", "x86_64 type", "cost", "rank"),
        (False, True, False, True, True, False, True, False, True, True),
        tuple(
            (
                escape(each.cost.table),
                str(each.cost.number),
                escape(each.cost.system),
                str(each.cost.printed),
                _dollars(each.same),
                _named(each.rent.cheapest, each, escape),
                _dollars(each.cheapest),
                _named(each.rent.cheapest_x86, each, escape),
                _dollars(each.cheapest_x86),
                f"{each.rank_then} → {MISSING if each.rank is None else each.rank}",
            )
            for each in reprice(published, follows, now)
        ),
        keys=3,
    )


def _source(published: Published, escape: Escape) -> Section:
    about = published.about
    text = (
        f"Published, not measured here: {escape(about.citation())} Licence: {escape(about.licence)}"
        f" ({escape(about.licence_remark)}). Figures as printed; the paper prints means and no samples, so there are no"
        " percentiles, intervals or memory figures to show."
    )
    return Section(escape(about.title), (text,))


def _hourly(price: Fraction) -> str:
    return f"{float(price):g}"


def _dollars(cost: Fraction | None) -> str:
    return MISSING if cost is None else decimal(cost, 2)


def _same(rent: Rent, follows: Snapshot, now: Snapshot, escape: Escape) -> str:
    if rent.same is not None:
        return _hourly(rent.same)
    if follows.provider != now.provider:
        return f"a type of another provider, {escape(follows.provider)}"
    if rent.successor is None:
        return "no price, and no type has at least its resources"
    return "gone"


def _gone(known: Sequence[Rent], escape: Escape) -> Iterator[str]:
    """Yield the types that are gone, each with its successor."""
    pairs = dict.fromkeys(
        f"{escape(rent.instance_type)} (now {_offer(rent.successor, escape)})"
        for rent in known
        if rent.same is None and rent.successor is not None
    )
    if pairs:
        with_ = "with the cheapest type of at least its resources, local hard disks not compared"
        yield f"Gone, {with_}: {', '.join(pairs)}."


def _offer(offer: Offer | None, escape: Escape) -> str:
    return MISSING if offer is None else f"{escape(offer.instance.instance_type)} {offer.usd_per_hour:g}"


def _named(offer: Offer | None, moved: RepricedCost, escape: Escape) -> str:
    if offer is None:
        return MISSING
    name = offer.instance.instance_type
    return "the same" if name == moved.rent.instance_type else escape(name)


def tables(published: Published, wrong: tuple[Erratum, ...], escape: Escape) -> tuple[Section, ...]:
    """Show Tables 1, 2, 3, 5 and 6 as the paper has them, with a mark at each row that has an erratum, and settings."""
    marks = _marks(wrong)
    third = [_table3(published, dataset, marks, escape) for dataset in published.about.datasets]
    return (
        _table1(published, escape),
        _table2(published, marks, escape),
        *third,
        _table3c(published, marks, escape),
        *_appendix(published, escape),
    )


def _marks(wrong: tuple[Erratum, ...]) -> dict[tuple[str, int], str]:
    """Return the marks of the errata by table and row."""
    marks: dict[tuple[str, int], str] = defaultdict(str)
    for number, each in enumerate(wrong, start=1):
        marks[each.table, each.number] += f" [E{number}]"
    return marks


def listed(wrong: tuple[Erratum, ...], escape: Escape) -> Section:
    """List the errata, numbered as the marks in the tables."""
    if not wrong:
        return Section("Errata", ("None: every figure agrees with the others.",))
    lines = (
        f"[E{number}] ({each.kind}) Table {escape(each.table)}, row {each.number}, {escape(each.row)}."
        f" Printed: {escape(each.printed)}. What follows: {escape(each.follows)}. Evidence: {escape(each.evidence)}."
        for number, each in enumerate(wrong, start=1)
    )
    return Section("Errata", notes=tuple(lines))


def _table1(published: Published, escape: Escape) -> Section:
    return grid_section(
        "Table 1: what other papers report, each on its own machine",
        (),
        ("system", "reported by", "GPU", "CPU", "RAM, GiB", "RR@10, %", "latency, ms", "index, GiB"),
        (False, False, True, True, True, True, True, True),
        tuple(
            (
                escape(line.system),
                escape(line.reference),
                *(_cell(each) for each in (line.gpu, line.cpu, line.ram_gib, line.mrr_at_10)),
                *(_cell(each) for each in (line.latency_ms, line.index_gib)),
            )
            for line in published.table1
        ),
    )


def _table2(published: Published, marks: dict[tuple[str, int], str], escape: Escape) -> Section:
    cells = []
    for number, line in enumerate(published.table2, start=1):
        latency, taken = published.latency_of(line)
        origin = f"{latency} ms, {taken.reference}" if taken else str(latency)
        cells.append(
            (
                escape(line.system),
                *_hardware(line.hardware),
                escape(line.instance_type),
                f"{line.cost_usd_per_million}{marks['2', number]}",
                escape(origin),
            )
        )
    return grid_section(
        "Table 2: the least hardware that each is said to need",
        ("The last column is not the paper's: it says whose latency of Table 1 the cost follows from.",),
        ("system", "GPU", "CPU", "RAM, GiB", "instance type", "US$ per million queries", "latency taken from"),
        (False, True, True, True, False, True, False),
        tuple(cells),
    )


def _table3(published: Published, dataset: PaperDataset, marks: dict[tuple[str, int], str], escape: Escape) -> Section:
    cells: list[tuple[str, ...]] = []
    before: TimedSystem | None = None
    for number, line in enumerate(published.table3[dataset.name], start=1):
        # As in the paper, only the first system of a hardware names it.
        again = before is not None and (before.hardware, before.instance_type) == (line.hardware, line.instance_type)
        where = ("",) * 4 if again else (*_hardware(line.hardware), escape(line.instance_type))
        cost = f"{line.cost_usd_per_million}{marks[dataset.table3, number]}"
        cells.append((*where, escape(line.system), str(line.latency_ms), cost))
        before = line
    return grid_section(
        f"Table {escape(dataset.table3)}: {escape(dataset.label)}, measured in one protocol",
        (),
        ("GPU", "CPU", "RAM, GiB", "instance type", "system", "latency, ms", "US$ per million queries"),
        (True, True, True, False, False, True, True),
        tuple(cells),
        keys=5,
    )


def _table3c(published: Published, marks: dict[tuple[str, int], str], escape: Escape) -> Section:
    datasets = published.about.datasets
    cells = []
    for system in dict.fromkeys(line.system for line in published.table3c):
        found = [published.accuracy(system, dataset) for dataset in datasets]
        figures = []
        for line in found:
            accuracy, success = map(_cell, _both(line))
            number = published.table3c.index(line) + 1 if line else 0
            figures += [f"{accuracy}{marks['3c', number]}", success]
        cells.append((escape(system), *figures))
    headers = [f"{each.label} {name}, %" for each in datasets for name in ("RR@10", "Success@10")]
    return grid_section("Table 3c: accuracy", (), ("system", *headers), (False, *(True for _ in headers)), tuple(cells))


def _appendix(published: Published, escape: Escape) -> tuple[Section, ...]:
    """Show Tables 5 and 6, and the settings that the text states."""
    examples = tuple((escape(line.dataset), str(line.training), str(line.dev)) for line in further.examples(published))
    lengths = tuple(
        (escape(line.system), str(line.query_tokens), str(line.passage_tokens)) for line in further.lengths(published)
    )
    settings = tuple(
        tuple(map(escape, (line.subject, line.value, line.kind, line.section))) for line in further.settings(published)
    )
    return (
        grid_section("Table 5: examples", (), ("dataset", "training", "dev"), (False, True, True), examples),
        grid_section(
            "Table 6: the longest query and passage, tokens",
            (),
            ("system", "query", "passage"),
            (False, True, True),
            lengths,
        ),
        grid_section("Settings in the text", (), ("of", "value", "kind", "where"), (False,) * 4, settings),
    )


def _both(line: Accuracy | None) -> tuple[Printed | None, Printed | None]:
    return (line.mrr_at_10, line.success_at_10) if line else (None, None)


def _hardware(hardware: Hardware) -> tuple[str, str, str]:
    return str(hardware.gpus), str(hardware.cpus), str(hardware.memory_gib)


def _cell(value: Printed | int | None) -> str:
    return MISSING if value is None else str(value)


def scores(published: Published, follows: Snapshot, wrong: tuple[Erratum, ...], escape: Escape) -> tuple[Section, ...]:
    """Show all printed scores beside those that follow from the printed figures.

    Args:
        published: the tables.
        follows: the prices that they follow.
        wrong: the errata, which are marked at their rows.
        escape: escapes texts for the format.
    """
    marks = _marks(wrong)
    return tuple(scored(made, marks, escape) for made in recomputed_scores(published, follows))


def scored(made: RecomputedScores, marks: Mapping[tuple[str, int], str], escape: Escape) -> Section:
    """Show one table of scores beside those that follow."""
    cells = []
    for number, (line, ranked) in enumerate(made.pairs(), start=1):
        printed = float(line.dynascore.value)
        if ranked is None or ranked.score is None:
            again = (MISSING,) * 3
        else:
            again = (f"{ranked.score:.3f}", f"{ranked.score - printed:+.3f}", str(ranked.rank))
        cells.append(
            (
                str(line.rank),
                escape(line.system),
                escape(line.hardware),
                f"{line.dynascore}{marks.get((made.table.number, number), '')}",
                *again,
            )
        )
    rates = ", ".join(f"{name} {rate:g}" for name, rate in made.dataset.amrs.items())
    weights = ", ".join(f"{name} {weight:g}" for name, weight in made.table.weights.items())
    printed_again = f" (printed again as {escape(made.table.again)})" if made.table.again else ""
    return grid_section(
        f"Table {escape(made.table.number)}{printed_again}: {escape(made.dataset.label)}, Dynascores made again",
        (
            f"Weights: {escape(weights)}. AMRS: {escape(rates)} (units for a point of RR@10). Made of accuracies,"
            f" latencies and costs as printed; the largest difference is {made.largest_difference:.3f}, which rounding"
            " explains.",
        ),
        ("rank", "system", "hardware", "printed", "made again", "difference", "rank"),
        (True, False, False, True, True, True, True),
        tuple(cells),
        keys=3,
    )
