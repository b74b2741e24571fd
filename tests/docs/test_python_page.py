"""The example of the Python page runs, and names every argument."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import harness

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "python.md"


def test_the_example_runs_on_shipped_results(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path))
    example = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)[0]
    exec(compile(example, str(PAGE), "exec"), {})
    printed = capsys.readouterr().out
    assert "minilm" in printed and "usd_per_million_queries" in printed and "latency_s" in printed
    assert "ms " in printed


@pytest.mark.parametrize("function", [harness.load, harness.load_samples])
def test_every_argument_is_on_the_page(function: Callable[..., object]) -> None:
    (shown,) = re.findall(rf"\*\*`harness\.{function.__name__}\((.*?)\)`\*\*", PAGE.read_text(encoding="utf-8"))
    named = [name.partition("=")[0] for name in shown.replace("*, ", "").split(", ")]
    assert named == list(inspect.signature(function).parameters)
