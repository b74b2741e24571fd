"""The examples of docs/guides/python.md run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import harness

PAGE = Path(__file__).resolve().parent.parent / "docs" / "guides" / "python.md"


@pytest.mark.slow
def test_examples_of_the_page_run() -> None:
    first, *examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert 'harness.load("results")' in first and len(examples) == 2
    names: dict[str, Any] = {"table": harness.load("quickstart"), "samples": harness.load_samples("quickstart")}
    for example in examples:
        exec(example, names)
    assert {"units", "meanings", "prices", "notes"} <= names["table"].attrs.keys()
