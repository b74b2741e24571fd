"""A measured row as a page's data: what it is ranked by in full, what is only looked at in fewer digits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from harness.analysis.table import Machine, Row, Timing
from harness.records import Outcome
from harness.report.page import prices
from harness.report.page.compact import Short, Texts, figure, numbers, rounded
from harness.stats import Estimate
from harness.untrusted import one_line

# What is only looked at; a histogram is made of quantiles.
_SHOWN, _QUANTILE = 5, 3


@dataclass
class Shared:
    """What rows share, each stored once and named by its number."""

    texts: Texts = field(default_factory=Texts)
    machines: dict[Machine, int] = field(default_factory=dict)
    needs: dict[prices.Need, Row] = field(default_factory=dict)

    def need(self, row: Row) -> int:
        """The number of what a row needs of a machine."""
        wanted = prices.need(row)
        self.needs.setdefault(wanted, row)
        return list(self.needs).index(wanted)

    def machine(self, machine: Machine | None) -> int | None:
        """The number of the machine that a row was measured on."""
        return None if machine is None else self.machines.setdefault(machine, len(self.machines))


def of(
    row: Row, place: int, measures: tuple[str, ...], quantiles_s: tuple[float, ...] | None, shared: Shared
) -> dict[str, Any]:
    """One row; keys without a value are left out.

    Args:
        row: as measured, without money.
        place: the number of its comparison group.
        measures: in the order of the page.
        quantiles_s: of its samples: minimum, every further 2 %, maximum.
        shared: takes what other rows have as well.
    """
    texts = shared.texts
    content = {
        **_identity(row, place, shared),
        **(_figures(row, measures, texts) if row.outcome is Outcome.OK else {}),
        "quantiles": None if quantiles_s is None else numbers(quantiles_s, _QUANTILE),
        "findings": [[each.cause.value, each.validity.value, texts.number(each.text)] for each in row.findings],
        # What is said by a finding is not said twice.
        "notes": _but(row.notes, {each.text for each in row.findings}, texts),
    }
    return {name: value for name, value in content.items() if value not in (None, [], {}, ())}


def _identity(row: Row, place: int, shared: Shared) -> dict[str, Any]:
    texts = shared.texts
    return {
        "key": one_line(row.per_query_key),
        "origin": texts.number(row.origin),
        "keys": [one_line(key) for key in row.keys or (row.key,)],
        "place": place,
        "suite": texts.number(row.suite),
        "system": texts.number(row.system),
        "profile": texts.number(row.profile),
        "outcome": row.outcome.value,
        "validity": row.validity.value,
        "detail": texts.number(row.detail),
        "standIn": texts.number(row.stand_in),
        "cpus": row.cpus,
        "gpus": row.gpus,
        "memory": row.memory_limit_bytes,
        "need": shared.need(row),
        "machine": shared.machine(row.machine),
        "publishedType": texts.number(row.published_type),
        "started": row.started_at,
        "jobs": row.jobs,
        "attempts": row.attempts,
        "apart": row.harness_apart,
        "pageCache": texts.number(row.page_cache),
    }


def _figures(row: Row, measures: tuple[str, ...], texts: Texts) -> dict[str, Any]:
    def shown(item: Estimate | None) -> Short:
        return figure(item, texts, digits=_SHOWN)

    def timing(item: Timing | None) -> list[Short] | None:
        return None if item is None else [shown(item.mean_s), shown(item.p50_s)]

    return {
        "queries": row.queries,
        "trials": row.trials,
        "judged": row.queries_judged,
        "unjudged": len(row.queries_unjudged),
        "measures": [figure(row.measures.get(name), texts) for name in measures],
        "mean": figure(row.latency_mean_s, texts),
        "onePass": row.one_pass_warmup,
        "like": figure(row.like_queries_s.get("mean"), texts),
        "these": figure(row.these_queries_s.get("mean"), texts),
        "throughput": figure(row.throughput_qps, texts),
        "throughputNote": texts.number(prices.throughput_note(row)),
        "p50": shown(row.p50_s),
        "p95": shown(row.p95_s),
        "p99": shown(row.p99_s),
        "atMost": {name: shown(item) for name, item in row.at_most_s.items()},
        "service": timing(row.service_s),
        "stages": {one_line(name): timing(item) for name, item in row.stages_s.items()},
        "spread": {name: shown(item) for name, item in row.spread_s.items()},
        "trialMeans": numbers(row.trial_means_s, _SHOWN),
        "anon": row.peak_anon_bytes,
        "mapped": row.peak_mapped_bytes,
        "cgroup": row.peak_cgroup_bytes,
        "gpuMemory": row.peak_gpu_bytes,
        "energy": rounded(row.gpu_energy_j, _SHOWN),
        "index": row.index_bytes,
        "build": rounded(row.index_build_s, _SHOWN),
        "builtWith": texts.number(row.build_envelope.name) if row.build_envelope else None,
        "documents": row.corpus_documents,
        "load": rounded(row.load_s, _SHOWN),
        "first": rounded(row.first_query_s, _SHOWN),
    }


def _but(notes: tuple[str, ...], said: set[str], texts: Texts) -> list[int | None]:
    return [texts.number(note) for note in notes if note not in said]
