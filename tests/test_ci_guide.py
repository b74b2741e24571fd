"""docs/guides/ci.md: the steps of its workflow, run as GitHub's runner would, but for the packages."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import docker
import pytest
import yaml

from tests.conftest import PLANTED, TOPICS, protocol, write_dataset

_ROOT = Path(__file__).resolve().parent.parent
_PAGE = (_ROOT / "docs" / "guides" / "ci.md").read_text(encoding="utf-8")
_JOB = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", _PAGE, re.DOTALL)[0])["jobs"]["gate"]


def _workspace(folder: Path) -> None:
    """Make what ``actions/checkout`` leaves there: an engine and its suite, which ranks worse in the branch."""
    for side in ("main", "branch"):
        shutil.copytree(PLANTED, folder / side / "images" / "planted")
        tiny = write_dataset(folder / side / "tiny")
        queries = [{"_id": f"q{n}", "text": f"where is the {TOPICS[n % 10]}"} for n in range(20)]
        queries += [{"_id": f"w{n}", "text": "what is warm"} for n in range(2)]
        (tiny / "queries.jsonl").write_text("".join(json.dumps(query) + "\n" for query in queries), encoding="utf-8")
        (tiny / "qrels.trec").write_text("".join(f"q{n} 0 d{n % 10} 1\n" for n in range(20)), encoding="utf-8")
        (folder / side / "suites").mkdir()
        suite = 'systems = ["planted"]\ndatasets = ["../tiny"]\nprofiles = ["cpu1-mem256m"]\noverhead = false\n'
        (folder / side / "suites" / "mine.toml").write_text(suite + protocol(3), encoding="utf-8")
    adapter = folder / "branch" / "images" / "planted" / "adapter.py"
    code = adapter.read_text(encoding="utf-8")
    assert code.count("hits = self._ranked(query, k)\n") == 1
    adapter.write_text(code.replace("self._ranked(query, k)\n", "self._ranked(query[:-3], k)\n"), encoding="utf-8")


@pytest.mark.docker
def test_the_steps_of_the_workflow_gate_a_branch(tmp_path: Path, engine: docker.DockerClient) -> None:
    _workspace(tmp_path)
    summary, harness = tmp_path / "summary.md", tmp_path / "bin" / "harness"
    harness.parent.mkdir()
    harness.write_text(f'#!/bin/sh\nexec {sys.executable} -m harness "$@"\n', encoding="utf-8")
    harness.chmod(0o755)
    known = {"PATH": f"{harness.parent}:{os.environ['PATH']}", "GITHUB_STEP_SUMMARY": str(summary)}
    known |= {"PYTHONPATH": str(_ROOT), "HARNESS_CACHE": str(tmp_path / "cache")}

    def run(step: dict[str, Any]) -> tuple[int, str]:
        given = {**_JOB["env"], **step.get("env", {})}
        env = {name: value.replace("${{ github.workspace }}", str(tmp_path)) for name, value in given.items()}
        words = ["/bin/bash", "-e", "-c", step["run"]]
        whole = {**os.environ, **known, **env}
        done = subprocess.run(words, cwd=tmp_path, env=whole, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    steps = [step for step in _JOB["steps"] if "run" in step and not step["run"].startswith("pip install")]
    *measured, (code, said) = map(run, steps)
    assert [ended for ended, _ in measured] == [0, 0], measured
    assert code == 1 and re.search(r"^\| worse +\| planted +\| nDCG@10 ", said, re.MULTILINE), said
    assert "| worse " in summary.read_text(encoding="utf-8")
    shutil.rmtree(tmp_path / "results" / "branch")
    shutil.copytree(tmp_path / "results" / "main", tmp_path / "results" / "branch")
    code, said = run(steps[-1])
    assert code == 0 and "not worse" in said, said
