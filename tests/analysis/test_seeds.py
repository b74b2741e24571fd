"""The mean of a model's seeds: by query, of its row, and in the commands that compare models."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness.analysis import results_folder, seeds
from harness.analysis.table import Carbon, CpuUse, Row
from harness.driver.records import Outcome
from harness.estimate import INTERVAL_MIN_QUERIES, Estimate
from harness.evaluation.per_query import PerQuery
from harness.launch.fake import FakeLauncher
from harness.results import suite_record
from tests.conftest import Bench
from tests.support import publisher
from tests.support.command_line import call
from tests.support.publisher import Made

# Ranks of the right document for the queries in turn; 0: not found.  No seed of "new" is better on every query.
NEW = {"new-s1": (1, 2, 2), "new-s2": (2, 1, 2), "new-s3": (2, 2, 1)}
OLD = {"old-s1": (2, 2, 2), "old-s2": (2, 2, 2), "old-s3": (2, 2, 2)}
MODEL = {name: name.partition("-")[0] for name in (*NEW, *OLD)}


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("seeds")
    cells = [Made(name, latency_ms, ranks, jobs=1) for latency_ms, (name, ranks) in enumerate((NEW | OLD).items(), 1)]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("HARNESS_CACHE", str(folder / "cache"))
        cells.append(Made("alone", 9.0, (1, 1, 1), jobs=1))
        options = {"measures": ("RR@10",), "firstp": {"new": "old"}, "seeds": MODEL}
        yield publisher.put(folder / "results", *cells, **options)  # type: ignore[arg-type]


def averaged(stored: Path) -> tuple[dict[str, Row], dict[str, PerQuery]]:
    table, values = results_folder.read(stored).table, results_folder.read(stored).per_query
    found, by_query = seeds.averaged(table, values, suite_record.read_pairs(stored, "seeds"))
    return {row.system: row for row in found.rows}, by_query


@pytest.mark.slow
def test_each_query_has_the_mean_of_the_seeds_and_the_row_follows(stored: Path) -> None:
    rows, values = averaged(stored)
    assert list(rows) == ["alone", "new", "old"]
    new = rows["new"]
    by_query = values[new.per_query_key].measures["RR@10"]
    np.testing.assert_allclose(by_query, np.full(len(by_query), (1 + 0.5 + 0.5) / 3))
    assert len(by_query) >= INTERVAL_MIN_QUERIES
    assert new.measured("RR@10") == pytest.approx(2 / 3)
    assert (new.jobs, len(new.keys), len(new.latency.trial_means_s)) == (
        3,
        3,
        3 * len(rows["alone"].latency.trial_means_s),
    )
    mean_ms = [1000 * (row.latency.mean_s.value or 0) for row in (new, rows["old"])]
    singles = {row.system: row for row in results_folder.read(stored).table.rows}
    for got, names in zip(mean_ms, (NEW, OLD), strict=True):
        assert got == pytest.approx(np.mean([1000 * (singles[name].latency.mean_s.value or 0) for name in names]))
    assert new.notes[0].startswith("mean of 3 seeds by RR@10: new-s1 0.6")
    assert rows["alone"] == singles["alone"], "a system without seeds stays as it is"


@pytest.mark.slow
def test_a_failed_seed_is_left_out_and_named(stored: Path, tmp_path: Path) -> None:
    cells = [Made("new-s1", 1.0, (1, 1, 1), jobs=1), Made("new-s2", 1.0, outcome=Outcome.OOM, jobs=1)]
    folder = publisher.put(tmp_path / "results", *cells, measures=("RR@10",), seeds=MODEL)
    rows, _ = averaged(folder)
    assert list(rows) == ["new"] and rows["new"].measured("RR@10") == 1
    assert rows["new"].notes[1] == "not in the mean, as they failed: new-s2 (oom); run them again"
    gone = publisher.put(tmp_path / "gone", Made("new-s1", 1.0, outcome=Outcome.OOM), measures=("RR@10",), seeds=MODEL)
    assert list(averaged(gone)[0]) == ["new-s1"], "nothing to average"


@pytest.mark.slow
def test_work_that_a_seed_did_not_count_is_missing_and_not_zero(stored: Path) -> None:
    table = results_folder.read(stored).table
    counted = {"new-s1": {"flop": 2.0, "pairs": 10.0}, "new-s2": {"flop": 4.0}, "new-s3": {"flop": 6.0}}
    rows = tuple(replace(row, counts=counted.get(row.system, {})) for row in table.rows)
    found, _ = seeds.averaged(replace(table, rows=rows), {}, MODEL)
    assert next(row.counts for row in found.rows if row.system == "new") == {"flop": 4.0}


def test_carbon_and_cpu_time_are_means_over_the_seeds(stored: Path) -> None:
    table = results_folder.read(stored).table
    grams = {"new-s1": (1.0, 4.0), "new-s2": (2.0, 5.0), "new-s3": (3.0, 9.0)}
    for processors, expected in ((("x",) * 3, (2.0, 6.0)), (("x", "x", "y"), ())):
        by_seed = {
            name: Carbon(grams=Estimate(ends[0], *ends), processors=(processor,), cases=ends)
            for (name, ends), processor in zip(grams.items(), processors, strict=True)
        }
        rows = tuple(
            replace(row, carbon=by_seed[row.system], cpu=CpuUse(per_query_s=Estimate(grams[row.system][0])))
            for row in table.rows
            if row.system in grams
        )
        (new,) = seeds.averaged(replace(table, rows=rows), {}, MODEL)[0].rows
        assert new.carbon.cases == expected and new.cpu.per_query_s.value == 2
        assert (new.carbon.grams.low, new.carbon.grams.high) == (expected or (None, None))


@pytest.mark.slow
def test_note_has_every_number_of_seeds_of_a_model(stored: Path) -> None:
    table = results_folder.read(stored).table
    elsewhere = tuple(replace(row, dataset="other") for row in table.rows if row.system in ("new-s1", "new-s2"))
    found, _ = seeds.averaged(replace(table, rows=(*table.rows, *elsewhere)), {}, MODEL)
    assert found.notes[-1] == "means over seeds: new (2 or 3), old (3)"


def test_run_stores_the_seeds_of_its_suite(bench: Bench) -> None:
    bench.run(FakeLauncher(), bench.suite('[seeds]\nmodel = ["planted", "null"]\n', systems=["planted", "null"]))
    assert suite_record.read_pairs(bench.results, "seeds") == {"planted": "model", "null": "model"}


@pytest.mark.slow
def test_models_are_compared_by_means_over_seeds(stored: Path) -> None:
    shown = json.loads(call("compare", "old", "new", "--results", str(stored), "--format", "json").stdout)
    (one,) = shown["comparisons"]
    (gain,) = [each for each in one["differences"] if each["metric"] == "RR@10"]
    # Every query gains a sixth of a point by the mean; a single seed gains on a third of the queries.
    assert (gain["won"], gain["lost"], gain["tied"]) == (gain["queries"], 0, 0)
    each = call("compare", "old-s1", "new-s1", "--results", str(stored), "--each-seed", "--format", "json")
    (one,) = json.loads(each.stdout)["comparisons"]
    (gain,) = [each for each in one["differences"] if each["metric"] == "RR@10"]
    assert 0 < gain["won"] < gain["queries"]
    missing = call("compare", "old-s1", "new", "--results", str(stored))
    assert missing.exit_code == 2 and "old-s1" in missing.stderr


@pytest.mark.slow
def test_first_screen_has_a_row_for_each_model_and_csv_one_for_each_seed(stored: Path) -> None:
    shown = call("report", str(stored)).stdout
    assert "- means over seeds: new (3), old (3)" in shown
    assert "| new " in shown and "| alone " in shown and "new-s1 " not in shown.partition("\n\n- ")[0]
    every = call("report", str(stored), "--format", "csv").stdout
    assert all(f"\n{name}," in every for name in (*NEW, *OLD)) and "\nnew," not in every


@pytest.mark.slow
def test_gains_over_firstp_are_of_means_over_seeds(stored: Path) -> None:
    shown = json.loads(call("report", str(stored), "--layout", "long-documents", "--format", "json").stdout)
    (group,) = shown["groups"]
    (new,) = group["systems"]
    assert (new["system"], new["firstp"], len(new["keys"])) == ("new", "old", 3)
    assert new["gain"] == pytest.approx(1 / 6)
