"""A folder of published tables in the paper's own shape, what is wrong with them, and what their costs became."""

from __future__ import annotations

from fractions import Fraction

from harness.analysis.published import errata, recompute, repricing
from harness.analysis.published.rounding import decimal
from harness.analysis.published.tables import Published
from harness.errors import UnknownName
from harness.pricing.offers import Offer
from harness.pricing.prices import Snapshot
from harness.report import paper_data
from harness.report.document import MISSING, Escape
from harness.report.latex import HEAD
from harness.report.paper_scores import scores
from harness.report.paper_tables import listed, tables
from harness.report.sections import LATEX, MARKDOWN, Dialect, Section

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
        return paper_data.as_csv(published, follows, now)
    if format == "json":
        return paper_data.as_json(published, follows, now)
    dialects = {"md": MARKDOWN, "latex": LATEX}
    if format not in dialects:
        raise UnknownName("format", format, FORMATS)
    return (HEAD if format == "latex" else "") + _written(published, follows, now, dialects[format])


def _written(published: Published, follows: Snapshot, now: Snapshot, dialect: Dialect) -> str:
    parts = (_source(published, dialect.escape), *sections(published, follows, now, dialect.escape))
    return "\n\n".join(dialect.write(part, 1 if part is parts[0] else 2) for part in parts) + "\n"


def sections(published: Published, follows: Snapshot, now: Snapshot, escape: Escape) -> tuple[Section, ...]:
    """Tables 1 to 3, the errata, costs and scores made again, and what became of the costs."""
    wrong = errata.errata(published, follows)
    return (
        *tables(published, wrong, escape),
        listed(wrong, escape),
        recomputed(published, follows, escape),
        *scores(published, follows, escape),
        rented(published, follows, now, escape),
        repriced(published, follows, now, escape),
    )


def recomputed(published: Published, follows: Snapshot, escape: Escape) -> Section:
    """Every cost from its latency and its instance's price."""
    every = recompute.costs(published, follows)
    return Section(
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
    """What each hardware costs an hour at both dates."""
    return Section(
        f"The same hardware, {follows.as_of} and {now.as_of}",
        (
            f"{escape('US$ per hour')}, {escape(str(follows))} and {escape(str(now))}. Cheapest:"
            " the cheapest type that provides what the hardware asks for; without GPUs never one that has some,"
            " with GPUs never one whose GPUs have"
            " less memory than those of the paper's type. Burstable and bare-metal types are left out.",
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
            for rent in repricing.rents(published, follows, now)
        ),
        keys=2,
    )


def repriced(published: Published, follows: Snapshot, now: Snapshot, escape: Escape) -> Section:
    """Every cost with the rents of the later date."""
    return Section(
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
            for each in repricing.moved(published, follows, now)
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


def _same(rent: repricing.Rent, follows: Snapshot, now: Snapshot, escape: Escape) -> str:
    if rent.same is not None:
        return _hourly(rent.same)
    if follows.provider != now.provider:
        return f"a type of another provider, {escape(follows.provider)}"
    if rent.successor is None:
        return "no price, and no type has at least its resources"
    return (
        f"no price; successor {_offer(rent.successor, escape)}, substituted (local hard disks are not compared), "
        "latency not re-measured"
    )


def _offer(offer: Offer | None, escape: Escape) -> str:
    return MISSING if offer is None else f"{escape(offer.instance.instance_type)} {offer.usd_per_hour:g}"


def _named(offer: Offer | None, moved: repricing.Moved, escape: Escape) -> str:
    if offer is None:
        return MISSING
    name = offer.instance.instance_type
    return "the same" if name == moved.rent.instance_type else escape(name)
