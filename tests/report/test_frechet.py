"""Distances for people, for spreadsheets and for programs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from harness.estimate import Estimate
from harness.evaluation.frechet import Distance, Distances, Settings
from harness.report import writers
from harness.report.frechet import FRECHET_VERSION, Sample, frechet_document, taus
from harness.report.plots import frechet as plots
from harness.report.plots import style


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


def two_kinds(far: tuple[float, float], near: tuple[float, float], middle: tuple[float, float]) -> Distances:
    values = {"far": far, "near": near, "middle": middle}
    systems = {
        name: tuple(distance(each, k=k) for each, k in zip(of, (1, 10), strict=True)) for name, of in values.items()
    }
    return replace(MADE, systems=systems)


def test_orders_by_two_distances_and_by_two_encoders_have_a_tau() -> None:
    made = two_kinds((0.5, 0.6), (0.2, 0.1), (0.3, 0.7))
    worth = {name: {"RR@10": value} for name, value in (("far", 0.6), ("near", 0.7), ("middle", 0.65))}
    rows = [line.replace(" ", "") for line in render([(made, worth)], "md").splitlines() if line.startswith("|")]
    # FD@1 orders near, middle, far, as RR@10 does; FD@10 near, far, middle: two of three pairs agree.
    assert rows[-4:] == ["|tauwith|RR@10|FD@1|", "|--------|----:|----:|", "|FD@1|1.000||", "|FD@10|0.333|0.333|"]
    other = replace(two_kinds((0.1, 0.1), (0.2, 0.2), (0.3, 0.3)), encoder="plain")
    text = render([(made, worth), (other, worth)], "md")
    assert "toy\\|set, encoders compared" in text
    assert "|FD@10plain|-0.333|0.333|1.000|" in text.replace(" ", "")
    (sample,) = json.loads(render([(made, worth)], "json"))["samples"]
    assert sample["tau_between"]["FD@1"] == {"FD@10": pytest.approx(1 / 3)}
    # Of the six orders of three systems two agree or disagree as much as the same order does, and all as much as 1 / 3.
    assert (sample["tau_p"]["FD@1"]["RR@10"], sample["tau_between_p"]["FD@1"]["FD@10"]) == (pytest.approx(1 / 3), 1.0)


@pytest.mark.slow
def test_picture_has_a_panel_for_each_distance_with_each_system(tmp_path: Path) -> None:
    made = two_kinds((0.5, 0.6), (0.2, 0.1), (0.3, 0.7))
    worth: dict[str, dict[str, float | None]] = {
        "far": {"RR@10": 0.6},
        "near": {"RR@10": 0.7},
        "middle": {"RR@10": None},
    }
    with style.settings(9):
        figure = plots.draw(made, worth, "RR@10", style.system_styles([*made.systems]))
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["FD@1, tau 1.00", "FD@10, tau 1.00"]
    drawn = {tuple(line.get_xydata()[0]) for axes in figure.axes for line in axes.lines if len(line.get_xydata()) == 1}
    assert {(0.6, 0.5), (0.7, 0.2), (0.6, 0.6), (0.7, 0.1)} <= drawn
    pictures = plots.pictures([(made, worth), (made, {"far": {}, "near": {}, "middle": {}})])
    (path,) = style.save_each(pictures, tmp_path, "svg")
    assert path.name.startswith("toy-set-") and path.name.endswith("-frechet-minilm.svg")
    assert plots.missing([(made, {"far": {}, "near": {}})])[0].startswith("toy|set: no picture: no measure of two")


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
