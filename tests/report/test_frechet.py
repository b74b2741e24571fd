"""Distances for people, for spreadsheets and for programs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from harness.errors import UnknownName
from harness.evaluation.frechet import Distance, Distances, Settings
from harness.report import writers
from harness.report.frechet import FRECHET_VERSION, Sample, frechet_document, taus
from harness.stats import Estimate


def render(samples: Sequence[Sample], form: str) -> str:
    return writers.write(frechet_document(samples), form)


def distance(value: float | None, *, k: int = 10, unlabelled: bool = False, short: int = 0) -> Distance:
    figure = Estimate(None, reason="a covariance takes two documents on each side")
    if value is not None:
        figure = Estimate(value, value - 0.05, value + 0.05)
    return Distance(k, unlabelled, figure, 30 - short, 40, 300, short, short)


MADE = Distances(
    dataset="toy|set",
    encoder="minilm",
    checkpoint_sha256="c" * 64,
    dimensions=384,
    settings=Settings(most_judged=5),
    queries=30,
    left_out=("q7",),
    judged=40,
    systems={"far": (distance(0.5, short=3),), "near": (distance(0.2),), "none": (distance(None),)},
)
VALUES = {"near": {"RR@10": 0.7}, "far": {"RR@10": 0.6}, "none": {"RR@10": None}}


def test_nearest_systems_come_first_with_intervals_and_measures() -> None:
    text = render([(MADE, VALUES)], "md")
    rows = [line.replace(" ", "") for line in text.splitlines() if line.startswith("|")]
    assert rows[0] == "|system|FD@10|RR@10|"
    assert rows[2:5] == ["|near|0.200(0.150–0.250)|0.700|", "|far|0.500(0.450–0.550)|0.600|", "|none|—|—|"]
    assert rows[-1] == "|FD@10|1.000|"
    assert "toy\\|set" in text and "at most 5 a query" in text
    for message in (
        "1 queries without a relevant document are left out, e.g. q7",
        "none, FD@10: a covariance takes two documents on each side",
        "fewer than 10 have far (3, none for 3)",
        "40 judged documents span fewer than the 384 dimensions",
    ):
        assert message in text


def test_differences_from_a_system_have_their_own_column_and_interval() -> None:
    far = replace(distance(0.5), against="near", difference=Estimate(0.3, 0.28, 0.32))
    made = replace(MADE, systems={"far": (far,), "near": (distance(0.2),)})
    text = render([(made, {"far": {}, "near": {}})], "md")
    rows = [line.replace(" ", "") for line in text.splitlines() if line.startswith("|")]
    assert rows[0] == "|system|FD@10|FD@10lessnear's|"
    assert rows[2:] == ["|near|0.200(0.150–0.250)|—|", "|far|0.500(0.450–0.550)|0.300(0.280–0.320)|"]
    assert "the interval of the paired difference" in text
    row, _ = csv.DictReader(io.StringIO(render([(made, {"far": {}, "near": {}})], "csv")))
    assert (row["system"], row["against"], row["difference"], row["difference_high"]) == ("far", "near", "0.3", "0.32")


def test_tie_of_equal_documents_has_no_order() -> None:
    tied = replace(MADE, systems={"far": (distance(0.2 + 1e-12),), "near": (distance(0.2),)})
    assert taus(tied, VALUES) == {"FD@10": {"RR@10": None}}


def test_csv_and_json_hold_every_digit_and_leave_missing_values_empty() -> None:
    rows = list(csv.DictReader(io.StringIO(render([(MADE, VALUES)], "csv"))))
    result = {(row["system"], row["measure"]): row for row in rows}
    assert len(rows) == 6 and result["near", "FD@10"]["value"] == "0.2" and result["near", "RR@10"]["value"] == "0.7"
    assert result["none", "FD@10"]["value"] == "" and "two documents" in result["none", "FD@10"]["reason"]
    content = json.loads(render([(MADE, VALUES)], "json"))
    assert content["frechet_version"] == FRECHET_VERSION
    (sample,) = content["samples"]
    assert sample["tau"] == {"FD@10": {"RR@10": 1.0}} and sample["settings"]["most_judged"] == 5
    assert sample["systems"][-1]["distances"][0]["figure"]["value"] is None


def test_an_unknown_format_is_named() -> None:
    with pytest.raises(UnknownName, match="unknown format 'xml'"):
        render([], "xml")
