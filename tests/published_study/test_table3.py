"""Measured rows in the shape of the paper's Table 3: every cell a number, or why there is none."""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from pathlib import Path
from typing import Any

import pytest

from harness import report
from harness.analysis import published as published_tables
from harness.analysis import results_folder, row_pricing
from harness.analysis.table import Cause, Finding, Row, Table, Validity
from harness.driver.records import Outcome
from harness.errors import UnknownName
from harness.estimate import Estimate
from harness.results.isolation import PROCESS
from results.published.santhanam2023.study import table3_records
from tests.support import sample_records
from tests.support.published import SHIPPED

GIB = 2**30
GOLDEN = Path(__file__).resolve().parents[1] / "golden"
HARDWARE = {
    "cpu1-mem2": (1, 2, 0, "a1.medium", 0.0255),
    "cpu2-mem4": (2, 4, 0, "a1.large", 0.051),
    "gpu1-cpu1-mem4": (1, 4, 1, "g4dn.xlarge", 0.526),
}
DRIFT = "drift: the slowest trial's mean is 1.49 times the fastest's"
ON_ARM = "priced on a1.medium (arm64); latency was measured on x86_64"
SMALL = "a BERT of two layers, trained for a minute"


def row(system: str, profile: str, **changes: Any) -> Row:
    cpus, gib, gpus, instance, usd = HARDWARE[profile]
    fields: dict[str, Any] = {
        "suite": "small",
        "system": system,
        "profile": profile,
        "cpus": cpus,
        "memory_limit_bytes": gib * GIB,
        "gpus": gpus,
        "price": sample_records.price(instance, usd, cpus, gib * GIB),
        "price_note": ON_ARM if instance == "a1.medium" else None,
        "stand_in": None if system == "bm25" else SMALL,
    }
    return sample_records.row(**{**fields, **changes})


def measured(system: str, profile: str, mean_ms: float, rr: float, **changes: Any) -> Row:
    usd = HARDWARE[profile][-1] / 3.6
    fields: dict[str, Any] = {
        "queries": 300,
        "trials": 5,
        "queries_judged": 300,
        "measures": {"RR@10": Estimate(rr), "Success@10": Estimate(rr + 0.125)},
        "latency_mean_s": Estimate(mean_ms / 1e3, mean_ms * 0.9 / 1e3, mean_ms * 1.1 / 1e3),
        "index_bytes": 3 * 2**20,
        "usd_per_million": Estimate(mean_ms * usd, mean_ms * usd * 0.9, mean_ms * usd * 1.1),
    }
    return row(system, profile, **{**fields, **changes})


def doubted(validity: Validity, text: str, cause: Cause = Cause.DRIFT) -> dict[str, Any]:
    return {"validity": validity, "findings": (Finding(cause, validity, text),), "notes": (text,)}


# In no order at all: the layout has its own.
ROWS = (
    measured("bt-splade-l", "cpu1-mem2", 46.0, 0.5),
    row("dpr", "cpu1-mem2", outcome=Outcome.OOM, detail="killed by the kernel: memory limit of 2048 MiB"),
    row("other", "cpu1-mem2", outcome=Outcome.TIMEOUT, stand_in=None),
    measured("bm25", "cpu2-mem4", 1.5, 0.625),
    measured("bm25", "cpu1-mem2", 1.634, 0.625, notes=("4 (q1, q2, q3, ...) queries have equal scores",)),
    measured("colbertv2-l", "cpu2-mem4", 459.0, 0.75, **doubted(Validity.NOISY, DRIFT)),
    measured("colbertv2-s", "cpu2-mem4", 206.0, 0.5, **doubted(Validity.INVALID, "throttled in 26 periods")),
    measured("dpr", "cpu2-mem4", 19.0, 0.25, latency_mean_s=Estimate(None, reason="the samples cannot be read")),
    measured("bt-splade-l", "cpu2-mem4", 33.0, 0.53125, usd_per_million=Estimate(None, reason="no type has it")),
    measured("bm25", "cpu1-mem2", 0.5, 0.625, scenario="offline"),
    row("bm25", "gpu1-cpu1-mem4", outcome=Outcome.NOT_APPLICABLE, detail="no GPU here", price=None, price_note="none"),
)
OTHER = (measured("bm25", "cpu1-mem2", 37.0, 0.125, dataset="xquad|zh", index_bytes=None),)


def table(*rows: Row, measures: tuple[str, ...] = ("RR@10", "Success@10")) -> Table:
    return sample_records.table(
        rows, measures, notes=("How the interval was made.", "Prices: aws us-east-1, 2026-07-20.")
    )


def shown(text: str, title: str) -> list[list[str]]:
    """The cells of the table under a heading, without its rule."""
    (part,) = (part for part in text.removeprefix("## ").split("\n## ") if part.startswith(title))
    lines = [line for line in part.splitlines() if line.startswith("|")]
    split = (re.split(r"(?<!\\)\|", line.strip("|")) for line in (lines[0], *lines[2:]))
    return [[cell.strip() for cell in line] for line in split]


def third(*rows: Row, **keys: Any) -> list[list[str]]:
    return shown(report.render(table(*rows, **keys), "md", layout="santhanam2023"), rows[0].dataset)[1:]


def accuracy(*rows: Row, **keys: Any) -> list[list[str]]:
    return shown(report.render(table(*rows, **keys), "md", layout="santhanam2023"), "Accuracy")


@pytest.mark.parametrize("format", ["md", "csv", "json"])
def test_table3_renders_the_golden_files(format: str) -> None:
    made = report.render(table(*ROWS, *OTHER), format, layout="santhanam2023")
    assert made.encode() == (GOLDEN / f"table3.{format}").read_bytes()


def test_layout_of_published_rows_matches_table_3() -> None:
    published = published_tables.read(SHIPPED)
    measured = results_folder.read(SHIPPED).table
    rows = tuple(each for each in measured.rows if each.suite == "santhanam2023")
    tariff = row_pricing.tariff(published.follows())
    made = row_pricing.price(dataclasses.replace(measured, rows=rows), tariff)
    text = report.render(made, "md", layout="santhanam2023")
    for dataset in published.about.datasets:
        cells = shown(text, f"{dataset.name}: latency and cost")[1:]
        at: list[str] = []
        found = []
        for line in cells:
            at = line[:4] if line[0] else at
            found.append((*at[:3], at[3].partition(" ")[0], line[4], float(line[5].partition(" ")[0])))
        assert found == [
            (str(one.gpu), str(one.cpu), str(one.ram_gib), one.instance_type, one.system, float(one.latency_ms.value))
            for one in published.table3[dataset.name]
        ]
    of = {line[0]: line[1:] for line in shown(text, "Accuracy")[1:]}
    assert list(of) == list(dict.fromkeys(line.system for line in published.table3c))
    for line in published.table3c:
        first = 0 if line.dataset == "MS MARCO" else 2
        assert of[line.system][first : first + 2] == [str(line.mrr_at_10), str(line.success_at_10)]


def test_small_checkpoints_take_the_place_of_the_papers() -> None:
    names = "bt-splade-l-small colbertv2-l-small dpr-small bm25 dprx colbertv2-s-small colbertv2-m-small"
    rows = [measured(name, "cpu1-mem2", 1.0, 0.5) for name in names.split()]
    ordered = "bm25 dpr-small colbertv2-s-small colbertv2-m-small colbertv2-l-small bt-splade-l-small dprx"
    assert [row.system for row in table3_records.ordered(rows)] == ordered.split()


def test_accuracy_does_not_depend_on_hardware() -> None:
    of = {line[0]: line[1:] for line in accuracy(*ROWS)}
    assert of.pop("system") == ["RR@10, %", "Success@10, %", "index, MiB"]
    assert of["bm25"] == ["62.5", "75.0", "3.00"]
    assert of["bt-splade-l †"][0].startswith("50.0–53.1 ["), "and a note says that they differ"
    assert of["colbertv2-l †"][0] == "75.0", "a noisy latency says nothing of a ranking"
    assert of["colbertv2-s †"] == ["50.0 invalid", "62.5 invalid", "3.00"], "there is no other"
    assert of["other"] == ["timeout", "timeout", "timeout"]
    valid = measured("colbertv2-s", "cpu1-mem2", 300.0, 0.875)
    assert {line[0]: line[1] for line in accuracy(*ROWS, valid)}["colbertv2-s †"] == "87.5"


def test_suites_of_one_dataset_are_kept_apart() -> None:
    one, two = (measured("bm25", "cpu1-mem2", 1.0, 0.5, suite=name) for name in ("a", "b"))
    text = report.render(table(one, two), "md", layout="santhanam2023")
    assert [line[4] for line in shown(text, "scifact (suite a)")[1:]] == ["bm25"]
    assert [line[4] for line in shown(text, "scifact (suite b)")[1:]] == ["bm25"]


def test_rows_of_other_scenarios_are_reported_as_left_out() -> None:
    text = report.render(table(*ROWS), "md", layout="santhanam2023")
    assert "one query after the other: 1 of scenario offline; see --layout rows." in text
    nothing = report.render(table(ROWS[9]), "md", layout="santhanam2023")
    assert nothing.startswith("No stored results.\n") and "1 of scenario offline" in nothing


def test_isolation_without_limits_is_named_beside_the_system() -> None:
    process = measured("bm25", "cpu1-mem2", 1.0, 0.5, isolation=PROCESS)
    assert [line[4] for line in third(ROWS[4], process)] == ["bm25", "bm25 (process)"]


def test_measure_beyond_1_is_not_printed_in_per_cent() -> None:
    counted = measured("bm25", "cpu1-mem2", 1.0, 0.5, measures={"NumRet": Estimate(3000.0), "nDCG@10": Estimate(0.675)})
    headers, line = accuracy(counted, measures=("nDCG@10", "NumRet"))
    assert headers[1:3] == ["nDCG@10, %", "NumRet"] and line[1:3] == ["67.5", "3000.0"]


def test_different_machines_are_named_at_their_rows() -> None:
    other = measured(
        "bm25", "cpu2-mem4", 1.0, 0.5, machine=dataclasses.replace(sample_records.MACHINE, cpu_model="Other CPU")
    )
    text = report.render(table(ROWS[4], other), "md", layout="santhanam2023")
    told = re.findall(r"^- \[\d+\] .*Measured on: ([^(]*) \(", text, flags=re.MULTILINE)
    assert told == ["AMD EPYC 9B14", "Other CPU"]
    assert "Measured on: AMD EPYC 9B14" in report.render(table(ROWS[4]), "md", layout="santhanam2023")


def test_foreign_text_is_escaped() -> None:
    hostile = row("bm25", "cpu1-mem2", outcome=Outcome.CRASH, detail="<b>|*x*", stand_in="=1+1 <i>|\x1b[31m")
    text = report.render(table(hostile), "md", layout="santhanam2023")
    assert "<b>" not in text and "<i>" not in text and "\x1b" not in text
    (line,) = csv.DictReader(io.StringIO(report.render(table(hostile), "csv", layout="santhanam2023")))
    assert line["stand_in"].startswith("'=1+1")
    assert report.render(table(hostile), "json", layout="santhanam2023").isascii()


def test_an_unknown_layout_or_format_is_named() -> None:
    with pytest.raises(UnknownName, match=r"unknown layout 'santhanam'. Did you mean 'santhanam2023'"):
        report.render(table(), "md", layout="santhanam")
    with pytest.raises(UnknownName, match="unknown format 'xml'"):
        report.render(table(), "xml", layout="santhanam2023")
