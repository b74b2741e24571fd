"""The environment of a job is read from the host; missing facts are None."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import harness
from harness.jobs import environment
from harness.launch.monitor.gpu import Gpus


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    environment.commit.cache_clear()
    yield
    environment.commit.cache_clear()


def test_this_host_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment.gpu, "probe", lambda: Gpus(("H200",), "590.1"))
    facts = environment.read("20.10.24")
    assert facts.kernel == platform.release() and facts.architecture == platform.machine()
    assert facts.cpu_model and facts.host_cpus >= 1 and facts.host_memory_bytes > 1 << 28
    assert facts.cgroup_version in (1, 2, None)
    assert (facts.docker_version, facts.harness_version) == ("20.10.24", harness.__version__)
    assert (facts.gpu_models, facts.gpu_driver) == (("H200",), "590.1")
    assert facts.instance_type is None
    assert environment.read(None).docker_version is None


def test_unnamed_processor_is_named_by_its_architecture(monkeypatch: pytest.MonkeyPatch) -> None:
    cpuinfo = "processor\t: 0\nmodel name\t: A CPU @ 3 GHz \nprocessor\t: 1\nmodel name\t: A CPU @ 3 GHz\n"
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: cpuinfo)
    assert environment.cpu_model() == "A CPU @ 3 GHz"
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: "processor\t: 0\nCPU implementer\t: 0x41\n")
    assert environment.cpu_model() == platform.machine()


@pytest.mark.parametrize(
    ("implementer", "part", "name"),
    [
        ("0x41", "0xd0c", "Arm Neoverse-N1"),
        ("0x41", "0xd40", "Arm Neoverse-V1"),
        ("0x41", "0xd99", f"{platform.machine()} (implementer 0x41, part 0xd99)"),
        ("0xc0", "0xd0c", f"{platform.machine()} (implementer 0xc0, part 0xd0c)"),
    ],
)
def test_different_arm_processors_have_different_names(
    monkeypatch: pytest.MonkeyPatch, implementer: str, part: str, name: str
) -> None:
    one = f"processor\t: 0\nCPU implementer\t: {implementer}\nCPU variant\t: 0x3\nCPU part\t: {part}\n\n"
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: one * 2)
    assert environment.cpu_model() == name


def test_modified_checkout_is_dirty_and_a_package_has_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "harness" / "__init__.py"
    package.parent.mkdir()
    package.touch()
    monkeypatch.setattr(harness, "__file__", str(package))
    assert environment.commit() is None
    # A copy of a checkout names the one that it is of.
    (package.parent / environment.COMMIT_FILE).write_text("0123abc-dirty-1\n")
    environment.commit.cache_clear()
    assert environment.commit() == "0123abc-dirty-1"
    (package.parent / environment.COMMIT_FILE).write_text("\n")
    environment.commit.cache_clear()
    assert environment.commit() is None
    (package.parent / environment.COMMIT_FILE).unlink()

    def git(*arguments: str) -> str:
        who = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
        done = subprocess.run(
            ["git", "-C", str(tmp_path), *who, *arguments], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def commit() -> str | None:
        environment.commit.cache_clear()
        return environment.commit()

    git("init", "-q")
    assert commit() is None, "nothing is committed yet"
    git("add", "-A")
    git("commit", "-qm", "first")
    head = git("rev-parse", "HEAD")
    assert commit() == head
    (tmp_path / "untracked").touch()
    assert commit() == head
    package.write_text("changed")
    first = commit()
    assert first and first.startswith(f"{head}-dirty-") and commit() == first
    for key, value in (("diff.context", "9"), ("diff.noprefix", "true"), ("color.ui", "always")):
        git("config", key, value)
    assert commit() == first, "what somebody's git is set to is no change"
    package.write_text("changed otherwise")
    assert commit() != first, "two changed checkouts are not one harness"
    git("checkout", "-q", ".")
    assert commit() == head
