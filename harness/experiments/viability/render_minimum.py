"""Report of the smallest hardware for a suite's systems, compared with Table 2 of a paper."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from harness.analysis.published import Viable
from harness.analysis.table import processors
from harness.experiments.viability.acceptance import MEAN, SLOWER, Criteria
from harness.experiments.viability.minimum import Minimum
from harness.experiments.viability.render import (
    CSV_COLUMNS,
    RentalOffers,
    mib,
    rent_json,
    rental_offers,
    verdict_section,
)
from harness.experiments.viability.search import ProbeFinding, Purpose
from harness.experiments.viability.smallest import Evidence, ViabilityVerdict
from harness.pricing import cost
from harness.pricing.instances import DEFAULT_CHOICE, TypeChoice
from harness.pricing.offers import Offer
from harness.pricing.prices import Snapshot
from harness.report.document import MISSING, Escape, Grid, GridColumn, ReportDocument, Section, Value, grid_of, lines_of
from harness.results.isolation import named
from harness.stats import median

# The number of failures on the first screen; other formats have all.
_MOST = 2


@dataclass(frozen=True)
class _Line:
    """One CPU count of a minimum: its verdict and the instances to rent, or the reason for a missing verdict."""

    minimum: Minimum
    cpus: int
    verdict: ViabilityVerdict | None = None
    rent: RentalOffers | None = None
    reason: str | None = None

    @property
    def offer(self) -> Offer | None:
        """Return the chosen instance type."""
        return (self.rent or {}).get("chosen")

    @property
    def smallest(self) -> bool:
        """Return whether it is the smallest hardware of its system."""
        return self.verdict is not None and self.verdict is self.minimum.smallest

    @property
    def mean_s(self) -> float | None:
        """Return the mean latency under the confirmed limit, in seconds: the median of the confirmations."""
        if self.verdict is None or self.verdict.limit_bytes is None:
            return None
        confirmed = (self.verdict.limit_bytes, Purpose.CONFIRMATION.value, ProbeFinding.PASS.value)
        jobs = [job for job in self.verdict.evidence if (job.limit_bytes, job.purpose, job.finding) == confirmed]
        means = [job.mean_s for job in jobs if job.mean_s is not None]
        return median(means) if means else None

    @property
    def usd_per_million(self) -> float | None:
        """Return the US$ of a million queries on the chosen type at that latency."""
        if self.offer is None or self.mean_s is None:
            return None
        return cost.usd_per_million(self.mean_s, self.offer.usd_per_hour)


def minima_document(
    suite: str, minima: Sequence[Minimum], criteria: Criteria, snapshot: Snapshot, choice: TypeChoice = DEFAULT_CHOICE
) -> ReportDocument:
    """Return the report on the smallest hardware of each system of a suite."""
    lines = [line for minimum in minima for line in _lines_of(minimum, snapshot, choice)]
    by_minimum = [[line for line in lines if line.minimum is minimum] for minimum in minima]
    # The smallest hardware, else the first CPU count.
    first = [next((line for line in own if line.smallest), own[0]) for own in by_minimum]

    def whole(escape: Escape) -> Iterable[Section]:
        yield Section(
            f"Smallest hardware, {suite}", grids=(_grid(first, escape),), notes=_notes(first, criteria, snapshot)
        )
        for line in lines:
            if line.verdict is not None:
                yield verdict_section(line.verdict, line.rent, snapshot, escape)
        failures = tuple(escape(text) for text in _failures(lines))
        if failures:
            yield Section("Without an answer", notes=failures)

    def answer(escape: Escape) -> Iterable[Section]:
        failures = [escape(text) for text in _failures(lines)]
        more = [f"{len(failures) - _MOST} more failed: --wide"] if len(failures) > _MOST else []
        notes = (*_notes(first, criteria, snapshot), *failures[:_MOST], *more)
        yield Section(grids=(_grid(first, escape),), notes=notes)

    return ReportDocument(
        sections=whole,
        lines=lambda: lines_of(list(_evidence(lines)), _COLUMNS),
        content=lambda: {"suite": suite, "minima": [_json(own, snapshot) for own in by_minimum]},
        answer=answer,
        plain=True,
    )


def _lines_of(minimum: Minimum, snapshot: Snapshot, choice: TypeChoice) -> Iterator[_Line]:
    """Yield a line for each CPU count, ascending."""
    by_count = {verdict.cpus: verdict for verdict in minimum.verdicts}
    for count in sorted({*by_count, *minimum.failures}):
        if (verdict := by_count.get(count)) is not None:
            yield _Line(minimum, count, verdict, rental_offers(verdict, snapshot, choice))
        else:
            yield _Line(minimum, count, reason=minimum.failures[count])


def _grid(lines: Sequence[_Line], escape: Escape) -> Grid:
    columns: list[GridColumn[_Line]] = [("system", False, lambda line: escape(line.minimum.system))]
    if len({line.minimum.dataset for line in lines}) > 1:
        columns.append(("dataset", False, lambda line: escape(line.minimum.dataset)))
    columns += [
        ("smallest hardware", False, _hardware),
        ("to rent", False, lambda line: line.offer.instance.instance_type if line.offer else MISSING),
        ("US$/1M", True, lambda line: MISSING if line.usd_per_million is None else f"{line.usd_per_million:.3g}"),
    ]
    if any(line.minimum.published for line in lines):
        columns += [
            ("Table 2", False, lambda line: _published(line, lambda row: str(row.hardware))),
            ("its type", False, lambda line: _published(line, lambda row: row.instance_type)),
            ("its US$/1M", True, lambda line: _published(line, lambda row: str(row.cost_usd_per_million))),
        ]
    return grid_of(lines, tuple(columns))


def _hardware(line: _Line) -> str:
    if line.verdict is None or line.verdict.limit_bytes is None:
        return MISSING
    held = f"{processors(line.cpus, line.minimum.gpus)}, {mib(line.verdict.limit_bytes)}"
    return named(line.verdict.isolation).marked(held)


def _published(line: _Line, text: Callable[[Viable], str]) -> str:
    return MISSING if line.minimum.published is None else text(line.minimum.published)


def _notes(lines: Sequence[_Line], criteria: Criteria, snapshot: Snapshot) -> tuple[str, ...]:
    asked = [f"{figure} <= {at_most_s * 1e3:.4g} ms" for figure, at_most_s in criteria.targets.items()]
    asked = asked or [f"{MEAN} within {SLOWER - 1:.0%} of unconstrained"]
    asked += [f"{measure} >= {least:g}" for measure, least in criteria.least.items()]
    notes = [f"Asked: every query answered and ranked as unconstrained, {', '.join(asked)}."]
    notes += dict.fromkeys(line.minimum.source for line in lines if line.minimum.source)
    return (*notes, f"every probe: --wide   prices of {snapshot}")


def _failures(lines: Sequence[_Line]) -> Iterator[str]:
    for line in lines:
        name = f"{line.minimum.system} on {line.minimum.dataset}, {processors(line.cpus, line.minimum.gpus)}"
        if line.reason is not None:
            yield f"{name}: {line.reason}"
        elif line.verdict is not None and line.verdict.limit_bytes is None:
            yield f"{name}: no limit was confirmed; quieten the machine (harness doctor), then --fresh"


def _evidence(lines: Sequence[_Line]) -> Iterator[tuple[_Line, Evidence | None]]:
    """Yield the jobs of each line, and one line for a CPU count without jobs."""
    for line in lines:
        jobs = line.verdict.evidence if line.verdict is not None else ()
        yield from ((line, job) for job in jobs or (None,))


def _of_verdict(
    name: str, get: Callable[[tuple[ViabilityVerdict, RentalOffers | None, Evidence]], Value]
) -> tuple[str, Callable[[tuple[_Line, Evidence | None]], Value]]:
    """Return a column of a verdict's jobs; empty without a verdict."""

    def value(pair: tuple[_Line, Evidence | None]) -> Value:
        line, job = pair
        return None if line.verdict is None or job is None else get((line.verdict, line.rent, job))

    return name, value


# What a paper's Table 2 says of a system, in JSON and (as ``published_...``) in CSV.
_PAPER: dict[str, Callable[[Viable], Value]] = {
    "system": lambda row: row.system,
    "cpus": lambda row: row.cpu,
    "gpus": lambda row: row.gpu,
    "memory_gib": lambda row: row.hardware.memory_gib,
    "instance_type": lambda row: row.instance_type,
    "usd_per_million": lambda row: float(row.cost_usd_per_million.value),
}


def _of_paper(
    name: str, get: Callable[[Viable], Value]
) -> tuple[str, Callable[[tuple[_Line, Evidence | None]], Value]]:
    return f"published_{name}", lambda pair: pair[0].minimum.published and get(pair[0].minimum.published)


_COLUMNS: tuple[tuple[str, Callable[[tuple[_Line, Evidence | None]], Value]], ...] = (
    ("system", lambda pair: pair[0].minimum.system),
    ("dataset", lambda pair: pair[0].minimum.dataset),
    ("cpus", lambda pair: pair[0].cpus),
    ("gpus", lambda pair: pair[0].minimum.gpus),
    ("smallest", lambda pair: pair[0].smallest),
    ("failure", lambda pair: pair[0].reason),
    ("mean_at_limit_s", lambda pair: pair[0].mean_s),
    ("usd_per_million", lambda pair: pair[0].usd_per_million),
    *(_of_paper(name, get) for name, get in _PAPER.items()),
    *(_of_verdict(name, get) for name, get in CSV_COLUMNS if name not in ("system", "dataset", "cpus", "gpus")),
)


def _json(own: Sequence[_Line], snapshot: Snapshot) -> dict[str, Any]:
    minimum = own[0].minimum
    best = next((line for line in own if line.smallest), None)
    paper = minimum.published
    return {
        "system": minimum.system,
        "dataset": minimum.dataset,
        "gpus": minimum.gpus,
        "smallest": best
        and best.verdict
        and {
            "cpus": best.cpus,
            "memory_bytes": best.verdict.limit_bytes,
            "mean_s": best.mean_s,
            "usd_per_million": best.usd_per_million,
        },
        "published": paper and {name: get(paper) for name, get in _PAPER.items()},
        "failures": {str(count): reason for count, reason in minimum.failures.items()},
        "verdicts": [
            {**asdict(line.verdict), "rent": line.rent and rent_json(line.rent, snapshot)}
            for line in own
            if line.verdict
        ],
    }
