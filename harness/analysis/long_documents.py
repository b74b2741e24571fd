"""Compare systems that read whole documents with their FirstP: the gain, and what it costs.

The FirstP of a system is the same model over a document's first part alone.  A suite declares it (``[firstp]``),
because neither names nor weights say it.  Gain, FLOP and tokens are the same on every machine; times are compared on
one machine only.  Axes and relative gains follow Boytsov et al. (2025), Figure 3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from harness.analysis import axes, comparison, pareto_front
from harness.analysis.axes import Axis, ComparisonGroup
from harness.analysis.paired_differences import Difference
from harness.analysis.pareto_front import FrontPoint, FrontState
from harness.analysis.table import Row, Table, Validity, ended
from harness.driver.records import Outcome
from harness.estimate import Estimate
from harness.evaluation.per_query import PerQuery

# Stage of the reranker's model, as adapters name it.
SCORE = "score"
NOT_MEASURED = "no FirstP measured"
_NONE = Estimate(None)
_GAIN = Axis("gain", "gain over FirstP", "%", True, lambda _: Estimate(None))


def _count(name: str) -> Callable[[Row], Estimate]:
    return lambda row: Estimate(row.counts.get(name), reason="not counted")


def _score(row: Row) -> Estimate:
    timing = row.latency.stages_s.get(SCORE)
    return Estimate(None, reason=f"no stage {SCORE!r} was timed") if timing is None else timing.mean_s


# The costs of reading the whole document; times depend on the machine.
RATIOS = tuple(
    Axis(name, label, "x FirstP", False, read)
    for name, label, read in (
        ("latency", "mean latency", attrgetter("latency.mean_s")),
        (SCORE, "time of stage score", _score),
        ("flop", "FLOP", _count("flop")),
        ("tokens", "tokens", _count("tokens")),
    )
)
_TIMED = ("latency", SCORE)


@dataclass(frozen=True)
class ReadingOn:
    """A system that reads whole documents, and its FirstP ``first``; ``reason``: why they are not compared.

    ``gain``: the difference of the measure, with its paired test.  ``relative``: the gain, per cent of FirstP's value.
    ``ratios``: its costs over FirstP's, by the names of ``RATIOS``.  ``front``: its place on the front of gain and that
    ratio within the group, FirstP included, by the same names.
    """

    row: Row
    first: Row | None
    reason: str | None = None
    gain: Difference | None = None
    relative: Estimate = Estimate(None)
    ratios: Mapping[str, Estimate] = field(default_factory=dict)
    front: Mapping[str, FrontState] = field(default_factory=dict)


@dataclass(frozen=True)
class LongGroup:
    """Comparable systems on one hardware profile, with their FirstP."""

    place: ComparisonGroup
    profile: str
    firsts: tuple[Row, ...]
    systems: tuple[ReadingOn, ...]


@dataclass(frozen=True)
class MeanGain:
    """A system's mean gain over its FirstP in per cent, over datasets, in one scenario and hardware profile."""

    system: str
    scenario: str
    profile: str
    datasets: tuple[str, ...]
    percent: float


@dataclass(frozen=True)
class LongDocuments:
    """All comparisons by one measure; ``unnamed``: systems without a FirstP in any suite."""

    measure: str
    groups: tuple[LongGroup, ...]
    unnamed: tuple[str, ...]

    def mean_gains(self) -> list[MeanGain]:
        """Return the mean gain of each system with two datasets or more, the largest first.

        As the last column of Table 1 of Boytsov et al. (2025): each dataset counts once, without regard to its size.
        A system with two gains on one dataset (over two query samples, for example) has no mean.
        """
        gains: dict[tuple[str, str, str], dict[str, list[float]]] = {}
        for group in self.groups:
            for each in group.systems:
                if each.relative.value is not None:
                    key = (each.row.system, group.place.scenario, group.profile)
                    gains.setdefault(key, {}).setdefault(group.place.dataset, []).append(each.relative.value)
        means = [
            MeanGain(*key, tuple(found), sum(value for (value,) in found.values()) / len(found))
            for key, found in gains.items()
            if len(found) > 1 and all(len(values) == 1 for values in found.values())
        ]
        return sorted(means, key=lambda mean: -mean.percent)


def build(table: Table, per_query: Mapping[str, PerQuery], firstp: Mapping[str, str], measure: str) -> LongDocuments:
    """Compare each row with its FirstP; all gains form one family of tests (Holm).

    Args:
        table: measured rows.
        per_query: their values by query, by :attr:`Row.per_query_key`.
        firstp: each system's FirstP.
        measure: the measure of the gain.
    """
    matched = [(row, *_first_of(row, table.rows, firstp[row.system])) for row in table.rows if row.system in firstp]
    pairs = [(first, row) for row, first, reason in matched if first is not None and reason is None]
    tested = comparison.paired(pairs, per_query, measure)
    gains = {id(row): gain for (_, row), gain in zip(pairs, tested, strict=True)}
    held: dict[tuple[ComparisonGroup, str], list[ReadingOn]] = {}
    for row, first, reason in matched:
        held.setdefault((axes.comparison_group(row), row.profile), []).append(
            _reading_on(row, first, reason, gains.get(id(row)), measure)
        )
    groups = tuple(_group(place, profile, systems) for (place, profile), systems in held.items())
    known = {*firstp, *firstp.values()}
    unnamed = dict.fromkeys(row.system for row in table.rows if row.system not in known)
    return LongDocuments(measure, groups, tuple(unnamed))


def _first_of(row: Row, rows: Sequence[Row], name: str) -> tuple[Row | None, str | None]:
    """Return a row's FirstP, preferably from the same machine, and why the two are not compared."""
    if row.outcome is not Outcome.OK:
        return None, ended(row.outcome, row.detail)
    group = axes.comparison_group(row)
    found = [each for each in rows if each.system == name and axes.comparison_group(each) == group]
    measured = [each for each in found if each.outcome is Outcome.OK]
    if not measured:
        failed = f" ({name} ended {found[0].outcome.value})" if found else f" ({name})"
        return None, f"{NOT_MEASURED}{failed}"
    first = max(
        measured,
        key=lambda each: (each.profile == row.profile, each.origin == row.origin, _hardware(each) == _hardware(row)),
    )
    if _list_of(first) != _list_of(row):
        return first, f"FirstP orders {_list_of(first)}; this one {_list_of(row)}"
    return first, None


def _list_of(row: Row) -> str:
    """Describe the first stage and its depth."""
    stage = row.first_stage
    return "no first stage" if stage is None else f"{stage.system}, depth {stage.depth}"


def _hardware(row: Row) -> tuple[object, ...] | None:
    """Return the properties of a machine that times depend on."""
    machine = row.machine
    if machine is None:
        return None
    return machine.cpu_model, machine.architecture, machine.gpu_models, machine.instance_type, machine.host_cpus


def _reading_on(row: Row, first: Row | None, reason: str | None, gain: Difference | None, measure: str) -> ReadingOn:
    if first is None or reason is not None:
        return ReadingOn(row, first, reason)
    ratios = {axis.name: _ratio(axis, row, first) for axis in RATIOS}
    return ReadingOn(row, first, None, gain, _relative(gain, first.measured(measure), measure), ratios)


def _relative(gain: Difference | None, base: float | None, measure: str) -> Estimate:
    """Return a gain in per cent of FirstP's value."""
    if gain is None or gain.a is None or gain.b is None:
        return Estimate(None, reason=f"{measure} is missing for one of the two")
    if not base:
        return Estimate(None, reason=f"FirstP has {measure} 0")
    interval = gain.interval
    value = gain.b - gain.a if interval.value is None else interval.value
    whole = Estimate(value, interval.low, interval.high, interval.reason)
    return whole.map(lambda points: 100 * points / base)


def _ratio(axis: Axis, row: Row, first: Row) -> Estimate:
    """Return a cost over FirstP's; its interval holds every ratio of two numbers in the two intervals."""
    ours, theirs = axis.read(row), axis.read(first)
    if axis.name in _TIMED:
        if row.profile != first.profile:
            return Estimate(None, reason=f"on different hardware: {row.profile}, FirstP on {first.profile}")
        if _hardware(row) != _hardware(first):
            return Estimate(None, reason="measured on different machines")
        if Validity.INVALID in (row.validity, first.validity):
            invalid = first if first.validity is Validity.INVALID else row
            return Estimate(None, reason=f"invalid: {invalid.system}")
    if ours.value is None or not theirs.value:
        missing, of = (ours, row) if ours.value is None else (theirs, first)
        return Estimate(None, reason=f"{missing.reason or 'not measured'} ({of.system})")
    value = ours.value / theirs.value
    if ours.low is None or ours.high is None or theirs.high is None or not theirs.low:
        return Estimate(value)
    return Estimate(value, ours.low / theirs.high, ours.high / theirs.low)


def _group(place: ComparisonGroup, profile: str, systems: Sequence[ReadingOn]) -> LongGroup:
    firsts = {id(each.first): each.first for each in systems if each.first is not None}
    states = {axis.name: _states(axis, systems) for axis in RATIOS}
    fronts = [
        {name: by_key[key] for name, by_key in states.items() if (key := each.row.per_query_key) in by_key}
        for each in systems
    ]
    placed = tuple(replace(each, front=front) for each, front in zip(systems, fronts, strict=True))
    return LongGroup(place, profile, tuple(firsts.values()), placed)


def _states(axis: Axis, systems: Sequence[ReadingOn]) -> dict[str, FrontState]:
    """Place systems with respect to the front of gain and one ratio; FirstP has no gain at ratio 1."""
    figures = [
        (each.row, {_GAIN.name: each.relative, axis.name: each.ratios.get(axis.name, _NONE)}) for each in systems
    ]
    points = [
        FrontPoint(row.per_query_key, row.system, of)
        for row, of in figures
        if None not in (figure.value for figure in of.values())
    ]
    if not points:
        return {}
    origin = FrontPoint("", "", {_GAIN.name: Estimate(0.0), axis.name: Estimate(1.0)})
    return pareto_front.states_of_points([*points, origin], [_GAIN, axis])
