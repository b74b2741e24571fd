"""A folder of published tables in the paper's own shape, what is wrong with them, and what their costs became."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction

from harness.errors import UnknownName
from harness.offers import Offer
from harness.prices import Snapshot
from harness.published import change, errata, recompute
from harness.published.about import Dataset
from harness.published.printed import Printed, decimal
from harness.published.tables import Hardware, Published, Timed
from harness.report import paper_data
from harness.report.markdown import escape

FORMATS = ("md", "csv", "json")
MISSING = "—"


@dataclass(frozen=True)
class Section:
    """A heading, sentences, and a grid of finished cells; ``numeric`` columns stand to the right."""

    title: str
    notes: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    numeric: tuple[bool, ...] = ()
    cells: tuple[tuple[str, ...], ...] = ()
    after: tuple[str, ...] = ()


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
        return paper_data.as_csv(published, follows, now)
    if format == "json":
        return paper_data.as_json(published, follows, now)
    if format != "md":
        raise UnknownName("format", format, FORMATS)
    parts = [f"# {escape(published.about.title)}", _source(published)]
    parts += [markdown(section, level=2) for section in sections(published, follows, now)]
    return "\n\n".join(parts) + "\n"


def sections(published: Published, follows: Snapshot, now: Snapshot) -> tuple[Section, ...]:
    """Tables 1 to 3, the errata, the costs made again, and what became of them."""
    wrong = errata.errata(published, follows)
    return (
        *tables(published, wrong),
        listed(wrong),
        recomputed(published, follows),
        rented(published, follows, now),
        repriced(published, follows, now),
    )


def markdown(section: Section, level: int) -> str:
    """A section as Markdown whose columns also line up in a terminal."""
    parts = [f"{'#' * level} {section.title}", *section.notes]
    if section.headers:
        parts.append("\n".join(_grid(section)))
    return "\n\n".join((*parts, *section.after))


def tables(published: Published, wrong: tuple[errata.Erratum, ...]) -> tuple[Section, ...]:
    """Tables 1, 2 and 3 as the paper has them, with a mark at each row that an erratum is about."""
    marks: dict[tuple[str, int], str] = defaultdict(str)
    for number, each in enumerate(wrong, start=1):
        marks[each.table, each.number] += f" [E{number}]"
    third = [_table3(published, dataset, marks) for dataset in published.about.datasets]
    return (_table1(published), _table2(published, marks), *third, _table3c(published))


def listed(wrong: tuple[errata.Erratum, ...]) -> Section:
    """The errata, numbered as the marks in the tables."""
    if not wrong:
        return Section("Errata", ("None: every figure agrees with the others.",))
    lines = (
        f"- [E{number}] ({each.kind.value}) Table {escape(each.table)}, row {each.number}, {escape(each.row)}."
        f" Printed: {escape(each.printed)}. What follows: {escape(each.follows)}. Evidence: {escape(each.evidence)}."
        for number, each in enumerate(wrong, start=1)
    )
    return Section("Errata", ("\n".join(lines),))


def recomputed(published: Published, follows: Snapshot) -> Section:
    """Every cost from its latency and its instance's price."""
    every = recompute.costs(published, follows)
    return Section(
        "Costs, made again",
        (
            f"Prices: {escape(str(follows))}. US$ per million queries = mean latency x US$ per hour / 3600 x"
            " 1,000,000. A latency printed as 19 ms stands for 18.5 to 19.5 ms, so what follows is an interval; a cost"
            " agrees if it rounds to what is printed for some latency of that interval.",
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
    )


def rented(published: Published, follows: Snapshot, now: Snapshot) -> Section:
    """What each hardware costs an hour at both dates."""
    return Section(
        f"The same hardware, {follows.as_of} and {now.as_of}",
        (
            f"US$ per hour, {escape(str(follows))} and {escape(str(now))}. Cheapest: the cheapest type that provides"
            " what the hardware asks for; without GPUs never one that has some, with GPUs never one whose GPUs have"
            " less memory than those of the paper's type. Burstable and bare-metal types are left out.",
        ),
        ("hardware", "paper's type", "then", "now", "cheapest then", "now", "x86_64 then", "now"),
        (False, False, True, True, False, False, False, False),
        tuple(
            (
                escape(str(rent.hardware)),
                escape(rent.instance_type),
                _hourly(rent.then),
                _same(rent),
                _offer(rent.cheapest_then),
                _offer(rent.cheapest),
                _offer(rent.cheapest_x86_then),
                _offer(rent.cheapest_x86),
            )
            for rent in change.rents(published, follows, now)
        ),
    )


def repriced(published: Published, follows: Snapshot, now: Snapshot) -> Section:
    """Every cost with the rents of the later date."""
    return Section(
        f"Costs, {follows.as_of} to {now.as_of}",
        (
            f"US$ per million queries with the prices of {escape(str(now))}. On another type than the paper's the"
            " type is substituted and the latency not re-measured: it is the paper's throughout. Rank: by cost within"
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
                _named(each.rent.cheapest, each),
                _dollars(each.cheapest),
                _named(each.rent.cheapest_x86, each),
                _dollars(each.cheapest_x86),
                f"{each.rank_then} → {each.rank}",
            )
            for each in change.moved(published, follows, now)
        ),
    )


def _source(published: Published) -> str:
    about = published.about
    return (
        f"Published, not measured here: {escape(about.citation())} Licence: {escape(about.licence)}"
        f" ({escape(about.licence_remark)}). Figures as printed; the paper prints means and no samples, so there are no"
        " percentiles, intervals or memory figures to show."
    )


def _table1(published: Published) -> Section:
    return Section(
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


def _table2(published: Published, marks: dict[tuple[str, int], str]) -> Section:
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
    return Section(
        "Table 2: the least hardware that each is said to need",
        ("The last column is not the paper's: it says whose latency of Table 1 the cost follows from.",),
        ("system", "GPU", "CPU", "RAM, GiB", "instance type", "US$ per million queries", "latency taken from"),
        (False, True, True, True, False, True, False),
        tuple(cells),
    )


def _table3(published: Published, dataset: Dataset, marks: dict[tuple[str, int], str]) -> Section:
    cells: list[tuple[str, ...]] = []
    before: Timed | None = None
    for number, line in enumerate(published.table3[dataset.name], start=1):
        # As in the paper, a hardware stands once, at the first of its systems.
        again = before is not None and (before.hardware, before.instance_type) == (line.hardware, line.instance_type)
        where = ("",) * 4 if again else (*_hardware(line.hardware), escape(line.instance_type))
        cost = f"{line.cost_usd_per_million}{marks[dataset.table3, number]}"
        cells.append((*where, escape(line.system), str(line.latency_ms), cost))
        before = line
    return Section(
        f"Table {escape(dataset.table3)}: {escape(dataset.label)}, measured in one protocol",
        (),
        ("GPU", "CPU", "RAM, GiB", "instance type", "system", "latency, ms", "US$ per million queries"),
        (True, True, True, False, False, True, True),
        tuple(cells),
    )


def _table3c(published: Published) -> Section:
    datasets = published.about.datasets
    cells = []
    for system in dict.fromkeys(line.system for line in published.table3c):
        found = [published.accuracy(system, dataset) for dataset in datasets]
        figures = [_cell(each) for line in found for each in _both(line)]
        cells.append((escape(system), *figures))
    headers = [f"{escape(each.label)} {name}, %" for each in datasets for name in ("RR@10", "Success@10")]
    return Section("Table 3c: accuracy", (), ("system", *headers), (False, *(True for _ in headers)), tuple(cells))


def _both(line: object) -> tuple[Printed | None, Printed | None]:
    return getattr(line, "mrr_at_10", None), getattr(line, "success_at_10", None)


def _hardware(hardware: Hardware) -> tuple[str, str, str]:
    return str(hardware.gpus), str(hardware.cpus), str(hardware.memory_gib)


def _cell(value: Printed | int | None) -> str:
    return MISSING if value is None else str(value)


def _hourly(price: Fraction) -> str:
    return f"{float(price):g}"


def _dollars(cost: Fraction | None) -> str:
    return MISSING if cost is None else decimal(cost, 2)


def _same(rent: change.Rent) -> str:
    if rent.same is not None:
        return _hourly(rent.same)
    return f"no price; successor {_offer(rent.successor)}, substituted, latency not re-measured"


def _offer(offer: Offer | None) -> str:
    return MISSING if offer is None else f"{escape(offer.instance.instance_type)} {offer.usd_per_hour:g}"


def _named(offer: Offer | None, moved: change.Moved) -> str:
    if offer is None:
        return MISSING
    return "the same" if offer.instance.instance_type == moved.rent.instance_type else offer.instance.instance_type


def _grid(section: Section) -> list[str]:
    """Padded, so that it reads as a table where nothing renders it."""
    rows = [section.headers, *section.cells]
    widths = [max(3, *(len(row[column]) for row in rows)) for column in range(len(section.headers))]
    rule = [
        "-" * (width - 1) + ":" if right else "-" * width for width, right in zip(widths, section.numeric, strict=True)
    ]
    padded = [
        [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, section.numeric, strict=True)
        ]
        for row in rows
    ]
    return [f"| {' | '.join(cells)} |" for cells in (padded[0], rule, *padded[1:])]
