"""Pins at first use: what a run resolves at the hub, locks beside its results, and takes again."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import datasets
from harness.analysis import results_folder
from harness.driver.records import Outcome
from harness.errors import FileError, ImageError, UsageError
from harness.experiments.viability import probe
from harness.launch.base import Prepared
from harness.launch.fake import FakeLauncher
from harness.launch.images import assets, catalog, first_use, recipes
from harness.launch.images.first_use import FirstUse
from harness.launch.images.systems import System
from harness.report import verify, writers
from harness.report.main_table import table_document
from harness.results import merge, pin_lock
from tests.conftest import Bench
from tests.support.command_line import call
from tests.support.model_hub import NO_HUB, Hub, chosen, serve

OLD, NEW, NEXT = "a" * 40, "b" * 40, "c" * 40
WEIGHTS = b"\x00\x01\x02" * 700
MODEL = {"config.json": b"{}", "model.safetensors": WEIGHTS}


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


PINS = {name: sha256(content) for name, content in MODEL.items()}


@pytest.fixture
def bench(bench: Bench) -> Bench:
    """A bench whose systems are made for each test."""
    (bench.cache / "process").unlink()
    return bench


@pytest.fixture
def hub() -> Iterator[Hub]:
    older = {**MODEL, "config.json": b'{"old": true}'}
    with serve(Hub({"someone/toy": {OLD: older, NEW: dict(MODEL)}})) as served, chosen(served.url):
        yield served


def bare(bench: Bench, name: str = "bare", *, revision: str | None = None, more: str = "") -> Path:
    """Add a system whose weights no file pins."""
    path = bench.folder / "engines" / "planted" / "systems" / f"{name}.toml"
    line = f'revision = "{revision}"\n' if revision else ""
    asset = f'[[assets]]\nfolder = "toy"\nlicence = "MIT"\nhub = "someone/toy"\n{line}files = {list(MODEL)}\n'
    path.write_text(f'description = "bare"\n{more}{asset}', encoding="utf-8")
    return path


def lock_of(bench: Bench) -> pin_lock.PinLock:
    return pin_lock.read(bench.results / "test-suite")


def mismatches(folder: Path) -> list[str]:
    """The places that `harness verify` names."""
    found = verify.verify_results(folder).mismatches
    return [str(mismatch.place) for mismatch in found]


class Containers(FakeLauncher):
    """A fake launcher of images that hold their files: they are known by the recipe, and fail without pins."""

    fetches_files = True

    def recipe(self, system: System) -> str:
        return recipes.recipe(system)

    def find(self, system: System) -> Prepared | None:
        return None if system.unpinned else super().find(system)

    def prepare(self, system: System) -> Prepared:
        if complaint := assets.not_pinned(system.name, system.assets):
            raise ImageError(complaint)
        return super().prepare(system)


def fetched(bench: Bench) -> Path:
    """Fetch the files of the system `bare` as the lock pins them, into a new cache."""
    system = first_use.locked(catalog.system("bare"), lock_of(bench), Path("pins.json"))
    return assets.fetch("bare", system.assets, bench.folder / "new cache", None) / "toy"


@pytest.mark.slow
def test_run_pins_at_the_newest_commit_locks_it_and_marks_the_row(bench: Bench, hub: Hub, logged: list[str]) -> None:
    bare(bench)
    suite = bench.suite(systems=["bare", "planted"])
    first = bench.run(Containers(), suite)
    assert [result.outcome for result, _ in first.jobs] == [Outcome.OK, Outcome.OK]
    raw = json.loads((bench.results / "test-suite" / "pins.json").read_text())
    files = {"hub": "someone/toy", "newest": True, "revision": NEW, "sha256": PINS}
    assert raw == {"systems": {"bare": {"toy": files}}}
    said = f"  bare: someone/toy at {NEW[:12]}, by the hub's checksums: 2 files pinned at first use"
    assert said in bench.screen.getvalue()
    marks = {result.spec.cell.system: str(result.provenance.pinned_at_first_use) for result, _ in first.jobs}
    assert marks == {"bare": f"someone/toy at {NEW[:12]}", "planted": "None"}
    rows = results_folder.read(bench.results).table.rows
    assert {row.system: str(row.pinned_at_first_use) for row in rows} == marks
    printed = call("report", str(bench.results), "--cache", str(bench.cache)).stdout
    assert "bare ‡" in printed and "‡ bare: pinned at first use; pins.json has the hashes." in printed
    lines = csv.DictReader(io.StringIO(writers.write_csv(table_document(results_folder.read(bench.results).table))))
    assert {line["system"]: line["pinned_at_first_use"] or "None" for line in lines} == marks
    assert not mismatches(bench.results), "the lock is sealed"

    # The hub moves on: the lock counts, and what was measured with its bytes is done.
    hub.models["someone/toy"][NEXT] = {**MODEL, "config.json": b'{"next": true}'}
    with chosen(NO_HUB):
        again = bench.run(Containers(), suite)
    assert (again.done_before, again.jobs) == (2, ())
    assert lock_of(bench).newest("someone/toy") == NEW


@pytest.mark.slow
def test_declared_revision_is_taken_instead_of_the_newest(bench: Bench, hub: Hub) -> None:
    bare(bench, revision=OLD)
    bench.run(Containers(), bench.suite(systems=["bare"]))
    files = lock_of(bench).files("bare", "toy")
    assert files and (files.revision, files.newest) == (OLD, False)
    assert files.sha256["config.json"] == sha256(b'{"old": true}')


@pytest.mark.slow
def test_systems_of_one_model_take_one_commit_on_different_days(bench: Bench, hub: Hub) -> None:
    bare(bench)
    bare(bench, "later")
    bench.run(Containers(), bench.suite(systems=["bare"]))
    hub.models["someone/toy"][NEXT] = {**MODEL, "config.json": b'{"next": true}'}
    done = bench.run(Containers(), bench.suite(systems=["bare", "later"]))
    assert {files["toy"].revision for files in lock_of(bench).systems.values()} == {NEW}
    (result,) = [result for result, _ in done.jobs]
    assert result.spec.cell.system == "later"


@pytest.mark.slow
def test_system_that_cannot_be_pinned_ends_alone(bench: Bench, hub: Hub) -> None:
    bare(bench)
    hub.gated.add("someone/toy")
    done = bench.run(Containers(), bench.suite(systems=["bare", "planted"]))
    ended = {result.spec.cell.system: (result.outcome, str(result.detail)) for result, _ in done.jobs}
    assert ended["planted"][0] is Outcome.OK
    assert ended["bare"][0] is Outcome.CRASH
    assert "bare: the hub restricts access to someone/toy; log in ('hf auth login')" in ended["bare"][1]
    assert not (bench.results / "test-suite" / "pins.json").exists()
    hub.gated.clear()
    again = bench.run(Containers(), bench.suite(systems=["bare", "planted"]))
    assert [result.outcome for result, _ in again.jobs] == [Outcome.OK]


@pytest.mark.slow
def test_without_a_hub_the_folder_of_models_is_locked(bench: Bench, tmp_path: Path) -> None:
    bare(bench)
    models = tmp_path / "models"
    (models / "toy").mkdir(parents=True)
    for name, content in MODEL.items():
        (models / "toy" / name).write_bytes(content)
    suite = bench.suite(systems=["bare"])
    done = bench.run(Containers(), suite)
    (detail,) = [str(result.detail) for result, _ in done.jobs]
    assert "the hub does not answer for someone/toy" in detail and "--models DIR" in detail
    done = bench.run(Containers(models=models), suite)
    assert [result.outcome for result, _ in done.jobs] == [Outcome.OK]
    files = lock_of(bench).files("bare", "toy")
    assert files and (files.revision, dict(files.sha256)) == (None, PINS)
    assert f"the folder {models} (the hub was not compared)" in bench.screen.getvalue()
    (models / "toy" / "config.json").write_bytes(b"another")
    bare(bench, "same")
    done = bench.run(Containers(models=models), bench.suite(systems=["same"]))
    assert [result.outcome for result, _ in done.jobs] == [Outcome.OK], "another system: its own first use"


@pytest.mark.slow
def test_system_pinned_since_with_other_bytes_is_one_line(bench: Bench, hub: Hub) -> None:
    path = bare(bench)
    suite = bench.suite(systems=["bare", "planted"])
    bench.run(Containers(), suite)
    published = {**PINS, "config.json": "0" * 64}
    table = "".join(f'"{name}" = "{digest}"\n' for name, digest in published.items())
    declared = path.read_text().partition("files = ")[0]
    path.write_text(f'{declared}revision = "{NEXT}"\n[assets.sha256]\n{table}')
    place = bench.results / "test-suite" / "pins.json"
    line = (
        f"{place}: bare was measured here with config.json of sha256 {PINS['config.json'][:12]}, its file now says"
        " 000000000000; choose another --results, or remove its entry there to measure it anew"
    )
    with pytest.raises(UsageError) as refused:
        bench.run(Containers(), suite)
    assert str(refused.value) == line
    assert bench.run(Containers(), suite, only="planted").done_before == 1, "others are not hindered"
    # The same bytes are no other bytes: what was measured with them is done.
    table = "".join(f'"{name}" = "{digest}"\n' for name, digest in PINS.items())
    path.write_text(f'{declared}revision = "{NEXT}"\n[assets.sha256]\n{table}')
    assert bench.run(Containers(), suite).done_before == 2
    path.write_text(path.read_text().replace("someone/toy", "someone/other"))
    with pytest.raises(UsageError, match=r"measured here with someone/toy, its file now names someone/other; choose"):
        bench.run(Containers(), suite)


@pytest.mark.slow
def test_entry_taken_out_by_hand_is_pinned_again_and_sealed(bench: Bench, hub: Hub) -> None:
    bare(bench)
    suite = bench.suite(systems=["bare"])
    bench.run(Containers(), suite)
    hub.models["someone/toy"][NEXT] = {**MODEL, "config.json": b'{"next": true}'}
    place = bench.results / "test-suite" / "pins.json"
    place.write_text('{"systems": {}}')
    assert mismatches(bench.results) == ["test-suite/pins.json"]
    done = bench.run(Containers(), suite)
    assert len(done.jobs) == 1 and lock_of(bench).newest("someone/toy") == NEXT
    assert not mismatches(bench.results)


@pytest.mark.slow
def test_component_is_pinned_under_its_own_name(bench: Bench, hub: Hub) -> None:
    bare(bench)
    system = catalog.system("bare")
    joined = system.model_copy(update={"name": "joined", "assets": (), "components": (system,)})
    use = FirstUse(pin_lock.PinLock(), Path("pins.json"), None)
    pinned = use.pin(joined)
    assert list(use.lock.systems) == ["bare"] and not pinned.unpinned
    assert str(pinned.pinned_at_first_use) == f"someone/toy at {NEW[:12]}"


@pytest.mark.slow
def test_merged_results_keep_the_lock_and_verify(bench: Bench, hub: Hub, tmp_path: Path) -> None:
    bare(bench)
    bench.run(Containers(), bench.suite(systems=["bare"]))
    out = tmp_path / "merged"
    merge.merge([merge.Source(bench.results, "me")], out)
    kept = pin_lock.read(out / "me" / "test-suite")
    assert kept == lock_of(bench) and not mismatches(out)
    assert [str(row.pinned_at_first_use) for row in results_folder.read(out).table.rows] == [
        f"someone/toy at {NEW[:12]}"
    ]
    with (out / "me" / "test-suite" / "pins.json").open("a") as file:
        file.write(" ")
    assert mismatches(out) == ["me/test-suite/pins.json"]


@pytest.mark.slow
def test_viable_keeps_the_lock_beside_its_jobs(bench: Bench, hub: Hub) -> None:
    bare(bench)
    about = probe.subject(catalog.system("bare"), datasets.find("./tiny", bench.folder), bench.cache, 4)
    jobs = probe.SubjectJobs(about, bench.results, bench.cache, Containers())
    assert not jobs.subject.system.unpinned
    lock = pin_lock.read(bench.results / "viable")
    assert lock.newest("someone/toy") == NEW
    hub.models["someone/toy"][NEXT] = {**MODEL, "config.json": b'{"next": true}'}
    again = probe.SubjectJobs(about, bench.results, bench.cache, Containers())
    assert again.subject.system.assets == jobs.subject.system.assets


@pytest.mark.slow
def test_download_goes_on_after_a_cut(bench: Bench, hub: Hub) -> None:
    bare(bench)
    weights = bytes(12 << 20)  # the hub's client writes ten MiB at a time
    hub.models["someone/toy"][NEW]["model.safetensors"] = weights
    bench.run(Containers(), bench.suite(systems=["bare"]))
    hub.cut["model.safetensors"] = 11 << 20
    assert (fetched(bench) / "model.safetensors").read_bytes() == weights
    assert hub.ranges == [10 << 20], "the rest alone was asked for"


@pytest.mark.slow
def test_another_machine_takes_the_bytes_of_the_lock_and_no_others(bench: Bench, hub: Hub) -> None:
    bare(bench)
    bench.run(Containers(), bench.suite(systems=["bare"]))
    hub.models["someone/toy"][NEXT] = {**MODEL, "config.json": b'{"next": true}'}
    hub.changed["model.safetensors"] = b"\x07" * len(WEIGHTS)
    found = sha256(hub.changed["model.safetensors"])
    with pytest.raises(ImageError, match=f"has sha256 {found}, expected {PINS['model.safetensors']}; fetch it again"):
        fetched(bench)
    hub.changed.clear()
    assert {path.name: path.read_bytes() for path in fetched(bench).iterdir()} == MODEL


@pytest.mark.slow
def test_restricted_download_says_so(bench: Bench, hub: Hub) -> None:
    """The hub tells everyone about large files of a restricted model, and sends them to few."""
    bare(bench)
    bench.run(Containers(), bench.suite(systems=["bare"]))
    hub.gated.add("someone/toy")
    with pytest.raises(ImageError, match=r"the hub restricts access to someone/toy: log in \('hf auth login'\)"):
        fetched(bench)


@pytest.mark.slow
@pytest.mark.parametrize(
    "content",
    [
        "[]",
        '{"systems": []}',
        '{"systems": {"../x": {}}}',
        '{"systems": {"bare": {"toy": {"sha256": {}}}}}',
        '{"systems": {"bare": {"toy": {"sha256": {"../../etc/passwd": "%s"}}}}}' % ("0" * 64),
        '{"systems": {"bare": {"toy": {"hub": "../models", "sha256": {"w": "%s"}}}}}' % ("0" * 64),
        '{"systems": {"bare": {"toy": {"hub": "a/b", "revision": "main", "sha256": {"w": "%s"}}}}}' % ("0" * 64),
        '{"systems": {"bare": {"toy": {"sha256": {"w": "short"}}}}}',
        "{" * 100_000,
    ],
)
def test_damaged_lock_is_one_line(bench: Bench, content: str) -> None:
    path = bench.results / "test-suite" / "pins.json"
    path.parent.mkdir(parents=True)
    path.write_text(content)
    with pytest.raises(FileError) as refused:
        bench.run(FakeLauncher(), bench.suite())
    assert str(refused.value).startswith(f"{path}: ") and "remove it to pin again" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.slow
def test_locks_of_one_origin_join_unless_they_disagree() -> None:
    def lock(system: str, digit: str) -> pin_lock.PinLock:
        files = {"hub": "a/b", "revision": NEW, "newest": True, "sha256": {"w": digit * 64}}
        return pin_lock.PinLock.model_validate({"systems": {system: {"toy": files}}})

    joined = lock("one", "1").joined(lock("two", "2"))
    assert joined and sorted(joined.systems) == ["one", "two"]
    assert lock("one", "1").joined(lock("one", "1")) == lock("one", "1")
    assert lock("one", "1").joined(lock("one", "2")) is None
