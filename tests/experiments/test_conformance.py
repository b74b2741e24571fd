"""Each thing that the contract asks for is seen when it is kept, and when it is not."""

from __future__ import annotations

import shutil

import pytest

from harness.driver.records import Envelope
from harness.experiments.conformance import examine
from harness.launch import process
from harness.launch.checks import Check, Level
from harness.launch.fake import FakeLauncher
from harness.launch.images import catalog
from harness.launch.process import ProcessLauncher
from tests.conftest import Bench

ENVELOPE = Envelope("cpu1-mem1", 1, 1 << 30)


def checks(bench: Bench, name: str) -> list[Check]:
    launcher = ProcessLauncher(bench.cache)
    folder = bench.folder / "conformance"
    folder.mkdir()
    return list(examine(launcher, catalog.system(name), ENVELOPE, folder))


@pytest.mark.slow
def test_an_engine_that_keeps_the_contract_passes(bench: Bench) -> None:
    found = checks(bench, "planted")
    assert [check for check in found if check.level is not Level.OK] == []
    assert [check.what for check in found] == [
        "the system is ready",
        "builds an index",
        "verifies its envelope, loads, answers every query with valid hits, ends in order",
        "ranks the same in both trials",
        "puts the document that is meant first",
        "says how many threads its libraries use",
        "names its libraries",
        "returns as many documents as asked for",
        "returns the same first documents for any k, equal scores included",
        "answers batches as it answers single queries",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("misdeed", "what", "detail"),
    [
        ("fickle", "ranks the same in both trials", "queries differ"),
        ("reversed", "puts the document that is meant first", "0 of 10 queries have it first"),
        ("constant", "puts the document that is meant first", "1 of 10 queries have it first"),
        ("loose_ties", "returns the same first documents for any k", "differ between k = 3 and k = 10, first "),
        ("swapped", "answers batches as it answers single queries", "of 12 queries"),
        ("always_two", "returns as many documents as asked for", "2 of 10 and 2 of 3"),
        ("always_ten", "returns as many documents as asked for", "asked for 3: 10 hits, asked for 3"),
        ("raise", "verifies its envelope, loads, answers every query", "ValueError: planted in two lines (adapter.py:"),
        ("too_many", "verifies its envelope, loads, answers every query", "11 hits, asked for 10"),
    ],
)
def test_each_fault_is_named(bench: Bench, misdeed: str, what: str, detail: str) -> None:
    bench.plant("planted", misdeed=misdeed)
    if misdeed == "always_two":  # else the driver counts
        file = bench.folder / "engines" / "planted" / "systems" / "planted.toml"
        file.write_text("fewer_hits_ok = true\n" + file.read_text())
    wrong = [check for check in checks(bench, "planted") if check.level is not Level.OK]
    assert any(check.what.startswith(what) and detail in check.fact for check in wrong), wrong


@pytest.mark.slow
@pytest.mark.parametrize("walls", [True, False])
def test_search_that_writes_into_its_index_fails_with_the_cause(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, walls: bool
) -> None:
    bench.plant("planted", misdeed="write_index")
    if not walls:  # as where the kernel lets nobody make namespaces
        monkeypatch.setattr(process, "_READ_ONLY", "")
    wrong = {check.what: check.fact for check in checks(bench, "planted") if check.level is not Level.OK}
    assert "search writes 'left-behind' into it; an index is read-only then" in wrong.pop(
        "leaves its index as it was built"
    )
    (detail,) = wrong.values()
    if not walls:
        assert detail.startswith("the search wrote into its index (left-behind), which is read-only in a container")
        assert not (bench.folder / "conformance" / "indexes" / "conformance" / "facts.json").exists()
    elif "wrote into its index" not in detail:  # where root may not mount either
        assert "Read-only file system" in detail


@pytest.mark.slow
def test_engine_that_fails_for_another_reason_has_no_index_finding(bench: Bench) -> None:
    bench.plant("planted", misdeed="raise")
    assert not [check for check in checks(bench, "planted") if "index as it was built" in check.what]


@pytest.mark.slow
def test_failed_index_build_ends_the_check(bench: Bench) -> None:
    bench.plant("planted", build_misdeed="raise")
    *_, last = checks(bench, "planted")
    assert last.level is Level.FAIL and last.what == "builds an index" and "does not build" in last.fact


@pytest.mark.slow
def test_null_system_need_not_return_hits(bench: Bench) -> None:
    found = checks(bench, "null")
    assert [check for check in found if check.level is not Level.OK] == []
    assert not any("is meant" in check.what for check in found)


@pytest.mark.slow
def test_gpu_image_searches_the_index_built_by_the_cpu_image(bench: Bench) -> None:
    planted = bench.folder / "engines" / "planted"
    shutil.copy(planted / "requirements.lock", planted / "requirements-cuda12.lock")
    system, launcher = catalog.system("planted"), FakeLauncher()
    folder = bench.folder / "conformance"
    folder.mkdir()
    gpu = Envelope("gpu1-cpu1-mem1", 1, 1 << 30, 1)
    list(examine(launcher, system, gpu, folder))
    ran = [(job.spec.kind, job.spec.envelope.gpus, job.prepared.system.image) for job in launcher.launched]
    assert ran == [("build", 0, "planted"), *[("search", 1, "planted-cuda")] * 3]
