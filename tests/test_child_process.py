"""Tests of the environment of child processes: a secret of ours reaches none that does not need it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness import child_process
from harness.launch.images import assets
from harness.launch.images.emulation import install_package

SECRETS = ("AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "GITHUB_TOKEN", "DATABASE_URL", "PIP_INDEX_URL")


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, "hunter2")


@pytest.mark.parametrize(
    ("needs", "seen"),
    [
        ((), set()),
        (child_process.NETWORK, set()),
        (child_process.PIP, {"PIP_INDEX_URL"}),
        (child_process.HUB, {"HF_TOKEN"}),
        (child_process.HARNESS, {"AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "PIP_INDEX_URL"}),
    ],
)
def test_child_sees_the_variables_of_its_kind_alone(needs: tuple[str, ...], seen: set[str]) -> None:
    variables = child_process.environment(*needs, OWN="x")
    assert variables.keys() & set(SECRETS) == seen
    assert variables["OWN"] == "x" and "PATH" in variables


@pytest.mark.slow
def test_hub_and_pip_and_apt_run_without_foreign_secrets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Put a program that writes its environment down in the place of each."""
    seen: list[set[str]] = []
    real = subprocess.run

    def recorded(command: list[str], **options: object) -> object:
        script = "import json, os; print(json.dumps(sorted(os.environ)))"
        done = real([sys.executable, "-c", script], env=options["env"], capture_output=True, text=True, check=True)
        seen.append(set(json.loads(done.stdout)) & set(SECRETS))
        return done

    monkeypatch.setattr(subprocess, "run", recorded)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assets.run_pip("--version")
    assets._quiet_python("", [], None)
    install_package("nothing")
    assert seen == [{"PIP_INDEX_URL"}, {"HF_TOKEN"}, set(), set()]


@pytest.mark.slow
@pytest.mark.parametrize("module", ["pip", "huggingface_hub"])
def test_module_in_the_working_directory_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"{module}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    if module == "pip":
        assert assets.run_pip("--version") is None
    else:
        assert assets._quiet_python("import huggingface_hub; huggingface_hub.__version__", [], None) is None
    assert not (tmp_path / "ran").exists()
