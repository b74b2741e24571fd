"""Every calibration case can be planned, and the adapter knows its parameters."""

from __future__ import annotations

import re

import pytest

from harness.datasets import Dataset
from harness.errors import UnknownName
from harness.experiments.calibration import cases, fixtures
from harness.experiments.calibration.cases import GROUPS, Group
from harness.experiments.calibration.known_values import PeakMemory
from harness.launch.images import catalog
from harness.results.schema import NULL_SYSTEM

ADAPTER = catalog.images_dir() / "calibration" / "adapter.py"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("dataset")
    return fixtures.dataset(folder / "source", folder / "cache")


def test_the_adapter_knows_every_parameter() -> None:
    known = set(re.findall(r'params(?:\.get\(|\[)"(\w+)"', ADAPTER.read_text(encoding="utf-8")))
    known |= set(re.findall(r'"(\w+)" in self\.params', ADAPTER.read_text(encoding="utf-8")))
    for group in GROUPS:
        for case in group.cases:
            assert {*case.params, *case.build_params} <= known, case.name


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.name)
def test_each_group_makes_a_suite(group: Group, dataset: Dataset) -> None:
    inputs = fixtures.inputs(group, catalog.system("calibration"), dataset)
    assert [cell.system for cell in inputs.cells] == [case.name for case in group.cases]
    assert not any(cell.system == NULL_SYSTEM for cell in inputs.cells)
    (sample,) = inputs.samples.values()
    assert len(sample.sample) == group.queries == inputs.suite.protocol.sample_size
    assert len(sample.warmup) == inputs.suite.protocol.warmup_queries
    assert not {query.query_id for query in sample.sample} & {query.query_id for query in sample.warmup}
    assert inputs.profiles[group.envelope.name].cpus == 1, "a profile with all CPUs is noisy by rule"


def test_query_carries_a_uniform_draw(dataset: Dataset) -> None:
    shares = [float(query.text.rpartition(" ")[2]) for query in dataset.queries[:2000]]
    assert 0 < min(shares) < max(shares) < 1
    # The largest distance from an even distribution that chance shows once in 1,000 such draws (Kolmogorov).
    distance = max(abs((rank + 0.5) / 2000 - share) for rank, share in enumerate(sorted(shares)))
    assert distance < 1.95 / 2000**0.5


def test_glob_selects_cases_or_a_group_with_their_dependencies() -> None:
    assert cases.select(None) == GROUPS
    assert [case.name for group in cases.select("spin-*") for case in group.cases] == [
        "spin-0.2ms",
        "spin-1ms",
        "spin-5ms",
        "spin-20ms",
        "spin-100ms",
        "spin-500ms",
    ]
    (hanging,) = cases.select("hanging")
    assert [case.name for case in hanging.cases] == ["hang"]
    (memory,) = cases.select("memory-256-in-child")
    assert [case.name for case in memory.cases] == ["memory-0-in-child", "memory-256-in-child"]
    with pytest.raises(UnknownName, match=r"unknown calibration case 'spin-2ms'. Did you mean"):
        cases.select("spin-2ms")


def test_every_memory_case_has_its_baseline() -> None:
    for group in GROUPS:
        names = {case.name for case in group.cases}
        for case in group.cases:
            assert not isinstance(case.known_value, PeakMemory) or case.known_value.bare in names, case.name
