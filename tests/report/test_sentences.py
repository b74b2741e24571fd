"""Sentences that tables and answers share."""

from __future__ import annotations

import pytest

from harness.analysis.table import Validity
from harness.report import sentences
from tests.report.conftest import row


@pytest.mark.parametrize(("names", "named"), [("a", "a"), ("abc", "a, b and c"), ("abcd", "a, b and 2 others")])
def test_sentence_on_noise_names_at_most_three_systems(names: str, named: str) -> None:
    rows = [row(name, "cpu1-mem1", validity=Validity.NOISY) for name in (*names, *names)]
    assert sentences.noise([row("quiet", "cpu1-mem1"), *rows]) == f" The latency of {named} is noisy."
