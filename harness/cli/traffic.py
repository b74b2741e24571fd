"""The options that describe a service's traffic and its number of documents."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from harness import config
from harness.cli.options import PATH, Decorator, FiniteRange, parsed_by, record_options
from harness.commands import option
from harness.errors import UsageError
from harness.pricing.bill import Traffic, read_traffic


@dataclass(frozen=True)
class TrafficOptions:
    """The options of a service's traffic as given; ``traffic_file`` is ``--traffic``."""

    queries_per_month: str | None
    peak: float | None
    documents: str | None
    changed: float | None
    builds: float | None
    machines: int | None
    traffic_file: Path | None

    @property
    def given(self) -> bool:
        """Return whether any option is given."""
        return any(value is not None for value in vars(self).values())

    def read(self, usual: Traffic | None = None) -> Traffic:
        """Return the traffic of the options, on top of a file's.

        ``usual``: has the queries if neither an option nor a file has them.

        Raises:
            UsageError: an option is no number, or the queries are missing.
            FileError: the file cannot be read, or one of its numbers is wrong.
        """
        numbers = {name: value for name, value in asdict(self).items() if value is not None and name != "traffic_file"}
        for name, kind in (("queries_per_month", float), ("documents", round)):
            if name in numbers:
                numbers[name] = kind(_amount(numbers[name], option(name)))
        if self.traffic_file is not None:
            return read_traffic(self.traffic_file, numbers)
        if "queries_per_month" not in numbers:
            if usual is None:
                raise UsageError("how many queries a month? e.g. --queries-per-month 3M, or --traffic FILE")
            numbers["queries_per_month"] = usual.queries_per_month
        return config.validate(Traffic, numbers, Path("the options"), "traffic")


def _amount(text: str, option: str) -> float:
    """Parse a number that may end in k, M or G.

    Raises:
        UsageError: it is something else.
    """
    match = re.fullmatch(r"([0-9][0-9_,]*(?:\.[0-9]+)?) ?([kMG]?)", text.strip(), flags=re.ASCII)
    if match is None:
        raise UsageError(f"{option} {text!r}: write a number of 0 or more, e.g. 250000, 3M or 1.5G")
    return float(re.sub("[_,]", "", match[1])) * {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}[match[2]]


def at_option(text: str) -> Decorator:
    """Make ``--at``, a number of documents; ``None`` where it is not given."""
    parse = parsed_by(lambda given: round(_amount(given, "--at")))
    return click.option("--at", callback=parse, metavar="DOCUMENTS", help=text)


# The command gets the options as one record.
traffic_options = record_options(
    "traffic",
    TrafficOptions,
    click.option("--queries-per-month", metavar="N", help="Queries in a month, e.g. 250000, 3M or 1.5G."),
    click.option("--peak", type=FiniteRange(1), help="Rate of the busiest hour over the mean rate.  [default: 3]"),
    click.option("--documents", metavar="N", help="Documents, e.g. 8.8M.  [default: as many as were measured]"),
    click.option(
        "--changed",
        type=FiniteRange(0),
        help="Share of documents changed or added each month, e.g. 0.05.  [default: 0]",
    ),
    click.option("--builds", type=FiniteRange(0), help="Builds of the whole index each month.  [default: 1]"),
    click.option("--machines", type=click.IntRange(1), help="Fewest machines; 2 where one may fail.  [default: 1]"),
    click.option(
        "--traffic",
        "traffic_file",
        type=PATH,
        metavar="FILE",
        help="These numbers from the table [traffic] of a TOML file; an option replaces its number.",
    ),
)
