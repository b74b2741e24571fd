"""Report of the smallest hardware for systems, with current prices and a paper's Table 2: each probe with --wide."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import Any

from harness.analysis.published import Viable
from harness.analysis.scaling import MeasuredSize
from harness.analysis.table import processors
from harness.experiments.viability.acceptance import MEAN, SLOWER, Criteria
from harness.experiments.viability.at_size import LimitAtSize, cheapest_with
from harness.experiments.viability.minimum import Minimum
from harness.experiments.viability.render import (
    JOB_COLUMNS,
    criteria_text,
    evidence_grid,
    fault_lines,
    mib,
    unconstrained_lines,
)
from harness.experiments.viability.search import MOVES, ProbeFinding, Purpose
from harness.experiments.viability.smallest import ViabilityVerdict, against_edge
from harness.pricing import cost, offers
from harness.pricing.instances import DEFAULT_CHOICE, TypeChoice
from harness.pricing.offers import Offer
from harness.pricing.prices import Snapshot
from harness.report.document import (
    MISSING,
    Escape,
    Grid,
    GridColumn,
    ReportDocument,
    Section,
    Value,
    bounded,
    grid_of,
    with_ends,
)
from harness.results.isolation import named
from harness.results.schema import sized_name
from harness.stats import median

# The number of failures and of doubts on the first screen; other formats have all.
_MOST = 2


@dataclass(frozen=True)
class _Line:
    """One CPU count of a minimum: its verdict and the type to rent, or the reason for a missing verdict."""

    minimum: Minimum
    cpus: int
    verdict: ViabilityVerdict | None = None
    offer: Offer | None = None
    reason: str | None = None

    @property
    def name(self) -> str:
        """Return the question, with the mark of an isolation that enforced less than a container."""
        hardware = processors(self.cpus, self.minimum.gpus)
        held = named(self.verdict.isolation).marked(hardware) if self.verdict else hardware
        return f"{self.minimum.system} on {self.minimum.dataset}, {held}"

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
    minima: Sequence[Minimum],
    criteria: Criteria,
    snapshot: Snapshot,
    choice: TypeChoice = DEFAULT_CHOICE,
    suite: str | None = None,
    predicted: Sequence[LimitAtSize] = (),
) -> ReportDocument:
    """Return the report on the smallest hardware of one system, or of each system of a suite.

    ``predicted``: limits at a number of documents that was not searched.
    """
    lines = [line for minimum in minima for line in _lines_of(minimum, snapshot, choice)]
    by_minimum = [[line for line in lines if line.minimum is minimum] for minimum in minima]
    # Of a suite the smallest hardware of each system, else the first CPU count.
    first = lines if suite is None else [next(filter(attrgetter("smallest"), own), own[0]) for own in by_minimum]
    verdicts = [line.verdict for line in first if line.verdict is not None]

    def notes(escape: Escape) -> Iterator[str]:
        yield _criteria_note(criteria)
        yield from dict.fromkeys(line.minimum.source for line in first if line.minimum.source)
        yield from dict.fromkeys(fault for verdict in verdicts for fault in fault_lines(verdict, escape))

    def whole(escape: Escape) -> Iterable[Section]:
        if suite is not None:
            title = f"Smallest hardware, {suite}"
            yield Section(title, grids=(_grid(first, suite, escape),), notes=tuple(notes(escape)))
        for line in lines:
            if line.verdict is not None:
                yield _verdict_section(line, line.verdict, snapshot, escape)
        if failures := tuple(map(escape, _failures(lines))):
            yield Section("Without an answer", notes=failures)
        if predicted:
            yield _predicted_section(predicted, escape)

    def answer(escape: Escape) -> Iterable[Section]:
        failures = [escape(text) for text in _failures(lines)]
        doubts = [f"{line.name}: {doubt}" for line in first if line.verdict for doubt in _doubts(line.verdict)]
        more = [f"{len(failures) - _MOST} more failed: --wide"] if len(failures) > _MOST else []
        lead = () if suite else tuple(f"{line.name}: {_headline(line.verdict)}" for line in first if line.verdict)
        pointer = f"every probe: --wide   prices of {snapshot}"
        shown = (*notes(escape), *failures[:_MOST], *more, *doubts[:_MOST], pointer)
        yield Section(lead=lead, grids=(_grid(first, suite, escape),), notes=shown)
        if predicted:
            yield _predicted_section(predicted, escape)

    return ReportDocument(
        sections=whole,
        lines=lambda: _csv(lines, predicted),
        content=lambda: {
            "suite": suite,
            "prices": str(snapshot),
            "minima": list(map(_json, by_minimum)),
            "predicted": list(map(_predicted_json, predicted)),
        },
        answer=answer,
        plain=True,
    )


def _predicted_section(found: Sequence[LimitAtSize], escape: Escape) -> Section:
    """Return the limits at a number of documents that was not searched."""
    columns: list[GridColumn[LimitAtSize]] = [
        ("system", False, lambda each: escape(each.system)),
        ("CPUs", False, lambda each: processors(each.cpus, each.gpus)),
        ("searched, MiB", False, lambda each: _limits(each.law.sizes)),
        ("smallest limit, GiB", True, lambda each: bounded(each.limit_bytes, 1 / 2**30)),
        ("to rent", False, lambda each: each.offer.instance.instance_type if each.offer else MISSING),
        ("US$/hour", True, lambda each: f"{each.offer.usd_per_hour:g}" if each.offer else MISSING),
    ]
    lead = f"{found[0].dataset}, predicted at {found[0].documents:,} documents (95 %)"
    notes = tuple(f"{each.system}: not predicted, {_why(each)}" for each in found if each.limit_bytes.value is None)
    return Section(lead=(escape(lead),), grids=(grid_of(found, columns),), notes=tuple(map(escape, notes)))


def _limits(sizes: Sequence[MeasuredSize]) -> str:
    return ", ".join(f"{size.documents:,}: {size.mean / 2**20:,.0f}" for size in sizes)


def _why(each: LimitAtSize) -> str:
    reason, exam = str(each.limit_bytes.reason), each.law.exam
    if exam is None or exam.passed:
        return reason
    predicted = bounded(exam.predicted, 1 / 2**20)
    return f"{reason}: {predicted} MiB for {exam.documents:,} documents, and {exam.measured / 2**20:.0f} were found"


def _predicted_json(each: LimitAtSize) -> dict[str, Any]:
    law, exam = each.law.law, each.law.exam
    return {
        **{name: getattr(each, name) for name in ("system", "dataset", "cpus", "gpus", "documents")},
        "searched": [{"documents": size.documents, "limit_bytes": size.mean} for size in each.law.sizes],
        **with_ends("limit_bytes", each.limit_bytes),
        "reason": each.limit_bytes.reason,
        "growth": law.growth.name if law else None,
        "exam_passed": exam.passed if exam else None,
        "instance_type": each.offer.instance.instance_type if each.offer else None,
        "usd_per_hour": each.offer.usd_per_hour if each.offer else None,
    }


def _lines_of(minimum: Minimum, snapshot: Snapshot, choice: TypeChoice) -> Iterator[_Line]:
    """Yield a line for each CPU count, ascending."""
    by_count = {verdict.cpus: verdict for verdict in minimum.verdicts}
    for count in sorted({*by_count, *minimum.failures}):
        if (verdict := by_count.get(count)) is not None:
            yield _Line(minimum, count, verdict, offer_of(verdict, snapshot, choice))
        else:
            yield _Line(minimum, count, reason=minimum.failures[count])


def offer_of(verdict: ViabilityVerdict, snapshot: Snapshot, choice: TypeChoice = DEFAULT_CHOICE) -> Offer | None:
    """Return the cheapest type with enough memory for a verdict's limit; ``None`` without a limit or such a type."""
    peak, cpus, gpus = verdict.unconstrained.peak_gpu_bytes, verdict.cpus, verdict.gpus
    of_each_gpu = None if peak is None or not gpus else -(-peak // gpus)
    return cheapest_with(verdict.limit_bytes, cpus, gpus, verdict.architecture, snapshot, choice, of_each_gpu)


def _verdict_section(line: _Line, verdict: ViabilityVerdict, snapshot: Snapshot, escape: Escape) -> Section:
    """Return a verdict with all evidence and the type to rent."""
    notes = (
        *unconstrained_lines(verdict.unconstrained),
        criteria_text(verdict.targets, verdict.least),
        *fault_lines(verdict, escape),
        *(() if verdict.margin_bytes is None else (f"Margin: {mib(verdict.margin_bytes)} above the anonymous peak.",)),
        *_doubts(verdict),
        *_rent(line.offer, verdict, snapshot),
    )
    return Section(line.name, (_headline(verdict),), (evidence_grid(verdict.evidence, escape),), notes=notes)


def _headline(verdict: ViabilityVerdict) -> str:
    if verdict.limit_bytes is None:
        return (
            f"No limit was confirmed: the last that was tried is {mib(verdict.below_bytes)}; quieten the machine"
            " (harness doctor shows its load) and try again with --fresh, or take a larger --step."
        )
    limit, below = mib(verdict.limit_bytes), mib(verdict.below_bytes)
    if verdict.below_bytes is None:
        less = "less than that starts no container"
        if verdict.lowest and not verdict.sharp:
            less += ", but not all jobs passed there"
        elif not verdict.lowest:
            less = f"less may be enough too: all {verdict.probes} probes passed; take a larger --step"
        return f"{limit} is enough, and {less}."
    if not verdict.binding:
        return (
            f"{limit} is the smallest limit that was confirmed; {below} passed as well, and after {MOVES} moves the"
            " search ended: the edge is not sharp."
        )
    passed = any(
        job.counts and job.limit_bytes == verdict.below_bytes and job.finding == ProbeFinding.PASS.value
        for job in verdict.evidence
    )
    text = f"{limit} is the smallest limit that passes; what binds is {' and '.join(verdict.binding)}: {below} fails"
    text += f"{' at times' if passed else ''}{'' if verdict.sharp else ', but the edge is not sharp'}."
    if verdict.limit_bytes - verdict.below_bytes > verdict.step_bytes:
        text += f" The {verdict.probes} probes leave the edge between these two, coarser than --step."
    return text


def _doubts(verdict: ViabilityVerdict) -> Iterator[str]:
    """Yield the jobs that contradict the edge, by limit."""
    if verdict.limit_bytes is None:
        return
    for limit in against_edge(verdict.evidence, verdict.limit_bytes, verdict.below_bytes):
        jobs = [job for job in verdict.evidence if job.counts and job.limit_bytes == limit]
        passed = sum(job.finding == ProbeFinding.PASS.value for job in jobs)
        causes = ", ".join(sorted({cause for job in jobs for cause in job.causes}))
        others = f"; the others: {causes}" if causes else ""
        yield f"Not sharp: {passed} of {len(jobs)} jobs with {mib(limit)} passed{others}."


def _rent(offer: Offer | None, verdict: ViabilityVerdict, snapshot: Snapshot) -> Iterator[str]:
    if verdict.limit_bytes is None:
        return
    reserve = f"with the host's own {offers.host_reserve()}"
    if offer is None:
        yield f"To rent: the prices of {snapshot} list no type that provides it {reserve}."
        return
    instance = offer.instance
    unmeasured = "" if instance.architecture == verdict.architecture else f"; measured on {verdict.architecture}"
    yield (
        f"To rent ({snapshot}, {reserve}): {instance.instance_type} ({instance.vcpus} vCPU,"
        f" {instance.memory_bytes / 2**30:g} GiB, {instance.architecture}), US$ {offer.usd_per_hour:g} per"
        f" hour{unmeasured}."
    )


def _grid(lines: Sequence[_Line], suite: str | None, escape: Escape) -> Grid:
    several = len({line.minimum.dataset for line in lines}) > 1
    columns: list[GridColumn[_Line] | None] = [
        ("system", False, lambda line: escape(line.minimum.system)) if suite else None,
        ("dataset", False, lambda line: escape(line.minimum.dataset)) if several else None,
        ("smallest hardware", False, _hardware),
        None if suite else ("margin", True, lambda line: mib(line.verdict.margin_bytes if line.verdict else None)),
        ("to rent", False, _type),
        None if suite else ("US$/hour", True, lambda line: f"{line.offer.usd_per_hour:g}" if line.offer else MISSING),
        ("US$/1M", True, lambda line: MISSING if line.usd_per_million is None else f"{line.usd_per_million:.3g}"),
    ]
    if any(line.minimum.published for line in lines):
        columns += [
            ("Table 2", False, lambda line: _published(line, lambda row: str(row.hardware))),
            ("its type", False, lambda line: _published(line, lambda row: row.instance_type)),
            ("its US$/1M", True, lambda line: _published(line, lambda row: str(row.cost_usd_per_million))),
        ]
    return grid_of(lines, columns)


def _hardware(line: _Line) -> str:
    if line.verdict is None or line.verdict.limit_bytes is None:
        return MISSING
    held = f"{processors(line.cpus, line.minimum.gpus)}, {mib(line.verdict.limit_bytes)}"
    return named(line.verdict.isolation).marked(held)


def _type(line: _Line) -> str:
    if line.offer is None or line.verdict is None:
        return MISSING
    instance = line.offer.instance
    same = instance.architecture == line.verdict.architecture
    return instance.instance_type if same else f"{instance.instance_type} ({instance.architecture}, not measured)"


def _published(line: _Line, text: Callable[[Viable], str]) -> str:
    return MISSING if line.minimum.published is None else text(line.minimum.published)


def _criteria_note(criteria: Criteria) -> str:
    if criteria.targets:
        return criteria_text(criteria.targets, criteria.least)
    return criteria_text({}, criteria.least, f"{MEAN} within {SLOWER - 1:.0%} of unconstrained")


def _failures(lines: Sequence[_Line]) -> Iterator[str]:
    for line in lines:
        if line.reason is not None:
            yield f"{line.name}: {line.reason}"
        elif line.verdict is not None and line.verdict.limit_bytes is None:
            yield f"{line.name}: no limit was confirmed; quieten the machine (harness doctor), then --fresh"


# The columns of a line in CSV.
_FIELDS = {
    **{"system": "minimum.system", "dataset": "minimum.dataset", "cpus": "cpus", "gpus": "minimum.gpus"},
    **{"smallest": "smallest", "failure": "reason", "mean_at_limit_s": "mean_s", "usd_per_million": "usd_per_million"},
    **{
        f"verdict_{name}": f"verdict.{name}"
        for name in ("limit_bytes", "below_bytes", "sharp", "margin_bytes", "binding")
    },
    **{"instance_type": "offer.instance.instance_type", "usd_per_hour": "offer.usd_per_hour"},
}


def _at(record: Any, path: str) -> Value:
    """Return the value of a path of attributes; None where one of them is missing."""
    for name in path.split("."):
        record = getattr(record, name, None)
    if isinstance(record, tuple):
        return " ".join(record)
    value: Value = record
    return value


# Of a limit that is predicted at a number of documents; these columns come last.
_PREDICTED_FIELDS: dict[str, Callable[[LimitAtSize], Value]] = {
    "predicted_limit_bytes": lambda each: each.limit_bytes.value,
    "predicted_from": lambda each: " ".join(str(size.documents) for size in each.law.sizes),
    "predicted_low_bytes": lambda each: each.limit_bytes.low,
    "predicted_high_bytes": lambda each: each.limit_bytes.high,
}


def _csv(lines: Iterable[_Line], predicted: Iterable[LimitAtSize]) -> Iterator[Sequence[Value]]:
    """Yield a line for each job, one for a CPU count without jobs, and one for each predicted limit."""
    yield [*_FIELDS, *(name for name, _ in JOB_COLUMNS), *_PREDICTED_FIELDS]
    for line in lines:
        values = [_at(line, path) for path in _FIELDS.values()]
        for job in (line.verdict.evidence if line.verdict else ()) or (None,):
            of_job = (get(job) if job else None for _, get in JOB_COLUMNS)
            yield [*values, *of_job, *(None for _ in _PREDICTED_FIELDS)]
    for each in predicted:
        own: dict[str, Value] = {
            **{"system": each.system, "dataset": sized_name(each.dataset, each.documents), "cpus": each.cpus},
            **{"gpus": each.gpus, "failure": each.limit_bytes.reason},
            "instance_type": each.offer.instance.instance_type if each.offer else None,
            "usd_per_hour": each.offer.usd_per_hour if each.offer else None,
        }
        of_law = (get(each) for get in _PREDICTED_FIELDS.values())
        yield [*(own.get(name) for name in _FIELDS), *(None for _ in JOB_COLUMNS), *of_law]


def _json(own: Sequence[_Line]) -> dict[str, Any]:
    minimum = own[0].minimum
    names = {"rent": "offer.instance.instance_type", "usd_per_hour": "offer.usd_per_hour", "smallest": "smallest"}
    names |= {"mean_s": "mean_s", "usd_per_million": "usd_per_million"}
    return {
        **{name: getattr(minimum, name) for name in ("system", "dataset", "gpus")},
        "failures": {str(count): reason for count, reason in minimum.failures.items()},
        "verdicts": [
            asdict(line.verdict) | {name: _at(line, path) for name, path in names.items()}
            for line in own
            if line.verdict
        ],
    }
