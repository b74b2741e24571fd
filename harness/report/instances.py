"""Instance types that provide an envelope, as a table, as lines and as an object for programs."""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Callable, Iterator

from harness.pricing import carbon, offers, prices, serverless, token_prices
from harness.pricing.offers import Offer, Offers
from harness.pricing.prices import Snapshot
from harness.report.document import MISSING, Escape, GridColumn, ReportDocument, Section, Value, grid_of, lines_of


def instances_document(found: Offers, snapshot: Snapshot, limit: int) -> ReportDocument:
    """Return the report on types that fit.

    Args:
        found: types that fit, cheapest first, and the others.
        snapshot: their prices.
        limit: the number of types that people see.
    """
    left_out: dict[str, list[str]] = defaultdict(list)
    for unfit in found.left_out:
        left_out[unfit.reason].append(unfit.instance.instance_type)

    def notes() -> Iterator[str]:
        more = len(found.fitting) - limit
        yield f"{f'{more} more fit (--limit). ' if more > 0 else ''}Prices: {snapshot}, Linux."
        hint = " (--format json names them)" if left_out else ""
        yield f"Left out: {len(found.left_out)}{hint}."
        for reason, names in sorted(left_out.items(), key=lambda item: -len(item[1])):
            yield f"{len(names)}: {reason}"

    def sections(escape: Escape) -> tuple[Section]:
        shown = found.fitting[:limit]
        columns = [column for column in _COLUMNS if any(column[2](offer) != MISSING for offer in shown)]
        return (Section(grids=(grid_of(shown, columns),), notes=tuple(map(escape, notes()))),)

    return ReportDocument(
        sections=sections,
        lines=lambda: lines_of(found.fitting, _FACTS),
        content=lambda: {
            "prices": str(snapshot),
            "instances": [{name: get(offer) for name, get in _FACTS} for offer in found.fitting],
            "left_out": left_out,
        },
        answer=sections,
    )


def _generation(offer: Offer) -> str | None:
    return {True: "current", False: "previous", None: None}[offer.instance.current_generation]


_FACTS: tuple[tuple[str, Callable[[Offer], Value]], ...] = (
    ("instance_type", lambda offer: offer.instance.instance_type),
    ("usd_per_hour", lambda offer: offer.usd_per_hour),
    ("vcpus", lambda offer: offer.instance.vcpus),
    ("physical_cores", lambda offer: offer.instance.physical_cores),
    ("memory_bytes", lambda offer: offer.instance.memory_bytes),
    ("job_memory_limit_bytes", lambda offer: offers.host_reserve().left(offer.instance.memory_bytes)),
    ("architecture", lambda offer: offer.instance.architecture),
    ("gpus", lambda offer: offer.instance.gpus),
    ("gpu_name", lambda offer: offer.instance.gpu_name),
    ("gpu_memory_bytes", lambda offer: offer.instance.gpu_memory_bytes),
    ("local_nvme_bytes", lambda offer: offer.instance.local_nvme_bytes),
    ("generation", _generation),
)
_COLUMNS: tuple[GridColumn[Offer], ...] = (
    ("instance type", False, lambda offer: offer.instance.instance_type),
    ("US$/hour", True, lambda offer: f"{offer.usd_per_hour:g}"),
    ("vCPUs", True, lambda offer: str(offer.instance.vcpus)),
    ("cores", True, lambda offer: str(offer.instance.physical_cores or "?")),
    ("GiB", True, lambda offer: f"{offer.instance.memory_bytes / 2**30:g}"),
    ("architecture", False, lambda offer: offer.instance.architecture),
    (
        "GPUs",
        False,
        lambda offer: f"{offer.instance.gpus} x {offer.instance.gpu_name}" if offer.instance.gpus else MISSING,
    ),
    ("NVMe, GB", True, lambda offer: f"{nvme / 1e9:g}" if (nvme := offer.instance.local_nvme_bytes) else MISSING),
    ("generation", False, lambda offer: _generation(offer) or "?"),
)


_OTHERS = {"tokens": "language models' tokens", serverless.FILES.kind: "serverless offers"}


def snapshot_ages(today: datetime.date) -> tuple[list[tuple[str, str, str, str, str, str]], list[str]]:
    """Return a line for each price snapshot, with its age, and a warning for each region whose newest is old."""
    snapshots = [
        (f"{snapshot.provider} {snapshot.region}", term, file.as_of, len(snapshot.prices), snapshot.source)
        for file in prices.snapshot_files()
        for term, snapshot in prices.read_snapshots(file).items()
    ]
    snapshots += [
        ("tokens", "list", tokens.as_of, len(tokens.models), tokens.source.partition(",")[0])
        for tokens in token_prices.FILES.read()
    ]
    snapshots += [
        (serverless.FILES.kind, "list", each.as_of, len(each.offers), each.source.partition(",")[0])
        for each in serverless.FILES.read()
    ]
    newest = {(region, term): (today - as_of).days for region, term, as_of, _, _ in snapshots}
    # Factors are revised once in years; their age is not warned of.
    snapshots += [
        ("carbon", "factors", each.as_of, len(each.processors), each.source.partition(",")[0])
        for each in carbon.FILES.read()
    ]
    lines = [
        (region, term, str(as_of), f"{(today - as_of).days} days", str(count), source)
        for region, term, as_of, count, source in snapshots
    ]
    return lines, [
        f"the newest {term} prices of {_OTHERS.get(region, region)} are {age} days old (more than"
        f" {prices.OLD_DAYS}); upgrade harness, or {prices.how_to_add(*region.partition(' ')[::2], term)}"
        for (region, term), age in newest.items()
        if age > prices.OLD_DAYS
    ]
