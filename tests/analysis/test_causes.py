"""Each cause of a finding has one entry, and nothing else in harness spells its remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

import harness
from harness.analysis import causes
from harness.analysis.causes import Again
from harness.analysis.table import Cause, Validity
from harness.analysis.validity.findings import Doubt, of_cell
from tests.support.sample_records import result

SOURCES = {path: path.read_text(encoding="utf-8") for path in Path(harness.__file__).parent.rglob("*.py")}


@pytest.mark.parametrize("cause", list(Cause))
def test_every_cause_has_plain_texts(cause: Cause) -> None:
    text = causes.TEXTS[cause]
    assert text.short[0].islower() and not text.short.endswith(".")
    assert len(text.short.split()) <= 9
    assert text.effect.endswith(".") and (not text.advice or text.advice.endswith("."))
    assert text.again is Again.NOT or not text.remedy or text.remedy.endswith((" then", " or"))
    elsewhere = [path.name for path, source in SOURCES.items() if text.remedy and text.remedy in source]
    assert elsewhere in ([], ["causes.py"])


@pytest.mark.parametrize("cause", [cause for cause in Cause if causes.TEXTS[cause].again is not Again.NOT])
def test_doubt_has_the_remedy_of_its_cause_and_the_command_for_its_cell(cause: Cause) -> None:
    text, cell = causes.TEXTS[cause], result().spec.cell
    finding, other = of_cell([Doubt(cause, "the fact"), Doubt(cause, "the fact", "do this, then")], cell)
    assert finding.text.startswith(" ".join(f"the fact; {text.remedy}".split())) and "run `harness run" in finding.text
    assert (finding.validity, finding.transient) == (Validity.NOISY, text.again is Again.RETRY)
    assert ("--retry-noisy 3" in finding.text) == ("--retry-noisy 3" in text.advice) == finding.transient
    assert other.text.startswith("the fact; do this, then run `")
