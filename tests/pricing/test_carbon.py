"""Dated factors of carbon, and the CO2e of queries: right values reckoned by hand."""

from __future__ import annotations

import datetime
import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.analysis import notes, row_carbon
from harness.analysis.table import CpuUse, Row
from harness.errors import FileError, UnknownName, UsageError
from harness.estimate import Estimate
from harness.pricing import carbon
from harness.pricing.carbon import CarbonRates
from harness.report import explain
from harness.untrusted import ForeignText
from tests.support import sample_records

HEAD = """date = {date}
source = "a list"
licence = "MIT"
spread = 2
pue = 1.2
memory_w_per_gib = 0.5
[grid]
"aws/here" = 300
"""
PROCESSORS = """[processors.old]
architecture = "x86_64"
idle_w = 2
busy_w = 8
models = ["Old *"]
[processors.new]
architecture = "x86_64"
idle_w = 1
busy_w = 3
models = ["New *"]
"""


def add(root: Path, date: str, text: str = "") -> Path:
    folder = root / "carbon"
    folder.mkdir(exist_ok=True)
    path = folder / f"{date}.toml"
    path.write_text(text or HEAD.format(date=date) + PROCESSORS)
    listed = sorted(folder.glob("*.toml"))
    sums = "".join(f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n" for each in listed)
    (folder / "SHA256SUMS").write_text(sums)
    return path


@pytest.fixture
def rates(tmp_path: Path) -> CarbonRates:
    add(tmp_path, "2026-01-01")
    found = carbon.rates("aws/here", root=tmp_path)
    assert found is not None
    return found


def row(model: str = "New 9", cpu_s: float = 0.03, **changes: Any) -> Row:
    """Return a row of two CPUs and 4 GiB whose queries take 20 ms."""
    fields = {
        "cpus": 2,
        "memory_limit_bytes": 4 << 30,
        "latency_mean_s": Estimate(0.02),
        "cpu": CpuUse(per_query_s=Estimate(cpu_s)),
        "machine": replace(sample_records.MACHINE, cpu_model=ForeignText(model)),
    }
    return sample_records.row(**{**fields, **changes})


def measured(package_j: float = 0.5, **changes: Any) -> Row:
    """Return such a row of an unknown processor whose CPU packages took so many joules a query."""
    cpu = CpuUse(per_query_s=Estimate(0.03), package_j=Estimate(package_j))
    return row("Other", **{"cpu": cpu, **changes})


def estimated(one: Row, rates: CarbonRates | None) -> Row:
    return replace(one, carbon=row_carbon.of_row(one, rates, "x86_64"))


# 30 ms of CPU time and 10 ms of idle CPUs are 0.03 x 3 + 0.01 x 1 = 0.1 J; memory is 0.02 x 4 x 0.5 = 0.04 J.
# 1 J x 1.2 / 3.6e6 x 300 g = 0.0001 g, so that a million queries of 0.1 J are 10 g.
@pytest.mark.parametrize(
    ("one", "low", "high"),
    [
        (row(), 10 / 2, (10 + 4) * 2),
        # "Old" has 0.03 x 8 + 0.01 x 2 = 0.26 J; any other name may be either.
        (row("Old 1"), 26 / 2, (26 + 4) * 2),
        (row("Other"), 10 / 2, (26 + 4) * 2),
        # More CPU time than the machine has in a query leaves no CPU idle: 0.05 x 3 = 0.15 J.
        (row(cpu_s=0.05), 15 / 2, (15 + 4) * 2),
        # Half of harness's own time: 20 ms of CPU time, 20 ms idle, 0.08 J.
        (row(cpu=CpuUse(per_query_s=Estimate(0.03), driver_s=0.01)), 8 / 2, (8 + 4) * 2),
        # 100 queries a second rent the machine 10 ms for one: 0.015 x 3 + 0.005 x 1 = 0.05 J, memory 0.02 J.
        (row(cpu_s=0.015, scenario="offline", throughput_qps=Estimate(100.0)), 5 / 2, (5 + 2) * 2),
        # GPUs took 30 J for 30 queries in each of 10 trials, as measured: 0.1 J more in each case.
        (row(gpus=1, gpu_energy_j=30.0, queries=30, trials=10), 10 / 2 + 10, (10 + 4) * 2 + 10),
        # The CPU packages took 0.5 J, as measured, whatever the processor: only the memory's 0.04 J are an estimate.
        (measured(), 50 + 4 / 2, 50 + 4 * 2),
        (measured(gpus=1, gpu_energy_j=30.0, queries=30, trials=10), 60 + 4 / 2, 60 + 4 * 2),
    ],
)
def test_grams_of_a_million_queries_are_a_range(one: Row, low: float, high: float, rates: CarbonRates) -> None:
    found = estimated(one, rates).carbon
    assert (found.grams.low, found.grams.high) == (pytest.approx(low), pytest.approx(high))
    sources = {
        (False, False): "estimated",
        (False, True): "GPUs measured, CPUs and memory estimated",
        (True, False): "CPU packages measured, memory estimated",
        (True, True): "CPU packages and GPUs measured, memory estimated",
    }
    assert found.source == sources[one.cpu.package_j.value is not None, one.gpus > 0]
    assert (found.date, found.grid, found.grams_per_kwh) == ("2026-01-01", "aws/here", 300)


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (row(cpu=CpuUse()), "the CPU time of a query was not measured"),
        (row(machine=None), "the row was not measured here"),
        (row(latency_mean_s=Estimate(None)), "the time of a query was not measured"),
        (row(gpus=1, queries=30, trials=10), "the energy of its GPUs is not known for a query"),
        (row(gpus=1, gpu_energy_j=3.0, queries=3, trials=1, scenario="server", throughput_qps=Estimate(9.0)), "GPUs"),
    ],
)
def test_a_missing_number_is_a_reason_not_zero(one: Row, reason: str, rates: CarbonRates) -> None:
    found = estimated(one, rates).carbon
    assert found.grams.value is None and reason in str(found.grams.reason) and found.source is None
    for without in (None, CarbonRates(rates.factors, None, "no grid")):
        assert row_carbon.of_row(row(), without, "x86_64").grams.reason


def test_rows_of_one_machine_are_ordered_although_their_ranges_overlap(rates: CarbonRates) -> None:
    """Twice the CPU time is more at any watts; ranges of two machines that overlap tell nothing."""
    less, more = estimated(row(cpu_s=0.02), rates), estimated(row(cpu_s=0.04), rates)
    elsewhere = estimated(row("New 8", cpu_s=0.04), rates)
    assert (more.carbon.grams.low or 0) < (less.carbon.grams.high or 0), "0.08 J, and 0.12 J with memory: 4 to 24 g"
    # 0.02 x 3 + 0.02 x 1 = 0.08 J against 0.04 x 3 = 0.12 J; with memory 0.12 against 0.16 J.
    assert row_carbon.ratio(less, more) == (pytest.approx(16 / 12), pytest.approx(1.5))
    assert row_carbon.least([more, less]) is less
    assert row_carbon.ratio(less, elsewhere) == (pytest.approx(6 / 24), pytest.approx(32 / 4))
    assert row_carbon.least([elsewhere, less]) is None and row_carbon.least([less]) is None
    # More CPU time in less time of the machine: "old" has 0.208 against 0.204 J, "new" 0.078 against 0.0795 J.
    quick = estimated(row("Other", cpu_s=0.026, latency_mean_s=Estimate(0.013)), rates)
    slow = estimated(row("Other", cpu_s=0.0225, latency_mean_s=Estimate(0.01725)), rates)
    assert row_carbon.least([quick, slow]) is None


def test_measured_joules_are_compared_with_each_other_case_by_case(rates: CarbonRates) -> None:
    less, more, guess = (estimated(one, rates) for one in (measured(), measured(1.0), row("Other")))
    # 52 to 58 g against 102 to 108 g, with the same watts of memory.
    assert row_carbon.ratio(less, more) == (pytest.approx(108 / 58), pytest.approx(102 / 52))
    assert row_carbon.least([more, less]) is less
    # An estimate of the same machine, 5 to 60 g, shares nothing with them.
    assert row_carbon.ratio(less, guess) == (pytest.approx(5 / 58), pytest.approx(60 / 52))
    assert row_carbon.least([less, guess]) is None


def test_sentences_name_the_measured_joules_and_no_watts_of_a_processor(rates: CarbonRates) -> None:
    one = estimated(measured(gpus=1, gpu_energy_j=30.0, queries=30, trials=10), rates)
    text = dict(explain.row_paragraphs(one))["Carbon"]
    assert text.startswith(
        "62.0–68.0 g CO2e per million queries, CPU packages and GPUs measured, memory estimated. A query takes 0.500 J "
        "of CPU packages as measured, 20.0 ms of 4 GiB, 0.100 J of GPUs as measured. Electricity of 300 g per kWh "
        "(aws/here),"
    )
    (note,) = notes.of_carbon([one])
    assert note.startswith(
        "gCO2e: the joules of CPU packages and GPUs are measured, the rest is an estimate, by 300 g per kWh (aws/here),"
    )


def test_the_grid_is_a_region_or_a_number(tmp_path: Path) -> None:
    add(tmp_path, "2026-01-01")
    for market, grid, expected in (
        ("aws/here", None, 300),
        ("aws/there", "here", 300),
        ("aws/there", "aws/here", 300),
        ("aws/here", "41.5", 41.5),
    ):
        found = carbon.rates(market, grid, root=tmp_path)
        assert found is not None and found.grid is not None and found.grid.grams_per_kwh == expected
    unknown = carbon.rates("aws/there", root=tmp_path)
    assert unknown is not None and unknown.grid is None
    assert unknown.reason.startswith("the factors of 2026-01-01 have no grams of CO2e a kWh for aws/there; name them,")
    for wrong, error in (("heer", UnknownName), ("-1", UsageError), ("0", UsageError), ("nan", UsageError)):
        with pytest.raises(error):
            carbon.rates("aws/here", wrong, root=tmp_path)


def test_factors_are_the_newest_up_to_a_date(tmp_path: Path) -> None:
    assert carbon.rates("aws/here", root=tmp_path) is None
    add(tmp_path, "2026-01-01")
    add(tmp_path, "2026-06-01")
    for day, expected in ((None, "2026-06-01"), (datetime.date(2026, 5, 31), "2026-01-01")):
        found = carbon.rates("aws/here", as_of=day, root=tmp_path)
        assert found is not None and found.factors.date == expected
    with pytest.raises(
        UsageError, match="no carbon factors from 2025-01-01 or before; choose one of these dates: 2026"
    ):
        carbon.rates("aws/here", as_of=datetime.date(2025, 1, 1), root=tmp_path)


def test_other_factors_are_of_a_date_or_the_newest_that_differ(tmp_path: Path) -> None:
    for date in ("2026-01-01", "2026-03-01", "2026-06-01"):
        add(tmp_path, date)
    now = carbon.rates("aws/here", root=tmp_path)
    for against, expected in ((None, "2026-03-01"), ("2026-02-01", "2026-01-01"), ("2025-01-01", None)):
        day = datetime.date.fromisoformat(against) if against else None
        found = carbon.other_rates(now, "aws/here", day, tmp_path)
        assert (found and found.factors.date) == expected


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("date = 2026-01-01", "date = 2026-01-02", "the file is named '2026-01-01.toml'"),
        ("spread = 2", "spread = 0.5", "spread"),
        ("idle_w = 2", "idle_w = -2", "processors.old.idle_w"),
        ("pue = 1.2", "peu = 1.2", "unknown key 'peu'"),
    ],
)
def test_a_wrong_file_names_itself_and_the_key(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = HEAD.format(date="2026-01-01") + PROCESSORS
    path = add(tmp_path, "2026-01-01", text.replace(old, new))
    with pytest.raises(FileError) as caught:
        carbon.rates("aws/here", root=tmp_path)
    assert str(caught.value).startswith(str(path)) and message in str(caught.value)
    path.write_text(text)
    with pytest.raises(FileError, match="its checksum differs from"):
        carbon.rates("aws/here", root=tmp_path)


@pytest.mark.parametrize(
    ("model", "names"),
    [
        ("AMD EPYC 9R14", ["EPYC 4th Gen"]),
        ("AMD EPYC 7763 64-Core Processor", ["EPYC 3rd Gen"]),
        ("AMD EPYC", ["EPYC 1st Gen", "EPYC 2nd Gen", "EPYC 3rd Gen", "EPYC 4th Gen"]),
        ("Intel(R) Xeon(R) Platinum 8175M CPU @ 2.50GHz", ["Skylake"]),
        ("Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz", ["Cascade Lake"]),
        ("Intel(R) Xeon(R) Platinum 8488C", ["Sapphire Rapids"]),
        ("Intel(R) Xeon(R) 6975P-C", ["Granite Rapids"]),
        ("Intel(R) Xeon(R) CPU E5-2686 v4 @ 2.30GHz", ["Broadwell"]),
        ("Intel(R) Xeon(R) CPU E5-2650 0 @ 2.00GHz", ["Sandy Bridge"]),
    ],
)
def test_a_kernels_name_stands_for_processors(model: str, names: list[str]) -> None:
    shipped = carbon.rates("aws/us-east-1")
    assert shipped is not None and list(shipped.processors(model, "x86_64")) == names


def test_the_shipped_factors_are_as_published_and_name_their_source() -> None:
    (shipped,) = carbon.FILES.read()
    assert shipped.licence == "Apache-2.0" and "third party's estimates" in shipped.source
    assert (shipped.pue, shipped.spread, shipped.memory_w_per_gib) == (1.135, 2.6, 0.392)
    assert (shipped.grid["aws/us-east-1"], shipped.grid["aws/eu-west-1"]) == (379.069, 316)
    epyc = shipped.processors["EPYC 3rd Gen"]
    assert (epyc.idle_w, epyc.busy_w) == (0.4556, 1.9573) and "EPYC 5th Gen" not in shipped.processors
    rates = carbon.rates("aws/us-east-1")
    assert rates is not None
    # Of names that stand for nothing, and of EPYC 5th Gen, any processor of the architecture may be meant.
    assert len(rates.processors("AMD EPYC 9R45", "x86_64")) == 15 and rates.processors("x", "arm64") == ("Graviton",)
    assert rates.processors("x", "riscv64") == ()
