"""Pins at first use of a suite on EC2: resolved here, and shipped to workers with their parts."""

from __future__ import annotations

from pathlib import Path

from harness.aws.clients import Connections
from harness.aws.objects import Objects
from harness.jobs.inputs import RunOptions, gather
from harness.launch.fake import FakeLauncher
from harness.remote import records, worker
from harness.remote.records import WorkerPart, fetch
from harness.results import pin_lock
from tests.aws.ec2.conftest import PROFILES, REGION, WORK, Field
from tests.support.model_hub import Hub, chosen, serve

COMMIT = "a" * 40


class Containers(FakeLauncher):
    """A fake launcher whose systems need their files."""

    fetches_files = True


def test_workers_get_the_pins_and_plan_the_same_systems(plain: Field, tmp_path: Path) -> None:
    asset = '[[assets]]\nfolder = "toy"\nlicence = "MIT"\nhub = "someone/toy"\nfiles = ["w.bin"]\n'
    path = plain.bench.folder / "engines" / "planted" / "systems" / "other.toml"
    path.write_text(f'description = "bare"\n{asset}', encoding="utf-8")
    with serve(Hub({"someone/toy": {COMMIT: {"w.bin": b"weights"}}})) as hub, chosen(hub.url), plain.workers():
        plain.run(plain.client(launcher=Containers()))
    lock = pin_lock.read(plain.bench.results / "test-suite")
    assert lock.newest("someone/toy") == COMMIT
    objects = Objects(Connections(REGION), WORK)
    run_id = next(each.name for each in objects.list("runs/") if each.name.endswith("run.json")).split("/")[1]
    shipped = fetch(WorkerPart, objects.below(records.run(run_id)), records.part(PROFILES[0]))
    assert shipped is not None and shipped.pins == pin_lock.plain(lock)
    # What the worker does with it, where no hub answers.
    request = plain.request()
    worker.keep_pins(tmp_path / "there" / "test-suite", shipped)
    there = RunOptions(tmp_path / "there", plain.bench.cache, plain.bench.folder)
    assert not gather(request.suite, there).systems["other"].unpinned
