"""Samples that unpack to far more than their file are refused by what it declares, for all that are held together."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.errors import FileError
from harness.results.reader import SAMPLES
from harness.results.samples import SampleBudget, cell_budget, load_samples
from tests.support import publisher
from tests.support.publisher import Made
from tests.support.results_folders import job, replace

_MOST_MIB = 512
# Runs commands, and prints for each its exit code, the most memory that the process held meanwhile, in KiB, and its
# output.  (ru_maxrss counts the parent's too, before the exec.)
_CHILD = """
import json, re, sys
from pathlib import Path
from click.testing import CliRunner
from harness.cli import main
for words in json.loads(sys.argv[1]):
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak
    done = CliRunner().invoke(main, words)
    peak = re.search(r"VmHWM:\\s+([0-9]+)", Path("/proc/self/status").read_text())[1]
    print(json.dumps([done.exit_code, int(peak), done.output]))
"""


def _table(rows: int, queries: list[str], columns: int = 0) -> pa.Table:
    """Return samples that take hardly any room in a file: all latencies are equal."""
    numbers = np.arange(rows)
    ids = pa.DictionaryArray.from_arrays(pa.array((numbers % len(queries)).astype(np.int32)), pa.array(queries))
    more = {f"stage_s{number}_ns": np.full(rows, 3) for number in range(columns)}
    trials = (numbers // len(queries)).astype(np.int32)
    return pa.table(
        {"query_id": ids, "trial": trials, "warmup": np.zeros(rows, bool), "latency_ns": 5 + 0 * numbers} | more
    )


def _write(path: Path, table: pa.Table, **more: object) -> None:
    pq.write_table(table, path, compression="zstd", **more)


def _wide(path: Path) -> None:
    _write(path, _table(500_000, [str(number) for number in range(1000)], columns=40))


@functools.cache
def _huge_ids() -> bytes:
    """Return a file whose ids have 64 MiB each, as they are, in one page."""
    ids = pa.array(["x" * (64 << 20) + str(number) for number in range(10)])
    table = _table(10, [str(number) for number in range(10)]).set_column(0, "query_id", ids)
    sink = pa.BufferOutputStream()
    # Statistics would take as long as all else.
    pq.write_table(
        table, sink, compression="zstd", use_dictionary=False, data_page_size=2**31 - 1, write_statistics=False
    )
    return sink.getvalue().to_pybytes()


def _huge_id(path: Path) -> None:
    path.write_bytes(_huge_ids())


def _lying_id(path: Path) -> None:
    """Hold ids of 64 MiB, and declare some bytes: pyarrow believes the page."""
    _huge_id(path)
    content, about = bytearray(path.read_bytes()), pq.read_metadata(path).row_group(0)
    for size in (about.column(0).total_uncompressed_size, about.total_byte_size):
        declared = _varint(2 * size)
        place = content.rindex(declared)
        content[place : place + len(declared)] = b"\x90" + b"\x80" * (len(declared) - 2) + b"\x00"
    path.write_bytes(content)
    assert pq.read_metadata(path).row_group(0).column(0).total_uncompressed_size == 8


def _varint(number: int) -> bytes:
    parts = []
    while number >= 128:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


def _shared_prefixes(path: Path) -> None:
    """Write ids as differences to the one before."""
    ids = pa.array(["x" * 900 + str(number) for number in range(100_000)])
    table = _table(100_000, [str(number) for number in range(1000)]).set_column(0, "query_id", ids)
    encodings = {"query_id": "DELTA_BYTE_ARRAY"}
    _write(path, table, use_dictionary=False, column_encoding=encodings)


_HOSTILE: dict[str, Callable[[Path], None]] = {
    "wide": _wide,
    "huge ids": _huge_id,
    "huge ids, undeclared": _lying_id,
    "ids that share their beginning": _shared_prefixes,
}


def _calls(*commands: tuple[str, ...]) -> Iterator[tuple[int, int, str]]:
    """Run commands in one process of their own: exit code, peak of its memory in MiB, output."""
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, json.dumps(commands)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        code, kib, output = json.loads(line)
        yield code, kib >> 10, output


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return publisher.put(Path("results"), Made("odd", 2.0), Made("good", 3.0), measures=("P@1",))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in _HOSTILE if "undeclared" not in kind])
def test_three_small_files_take_little_memory_in_every_command(results: Path, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "hostile.parquet"
    _HOSTILE[kind](path)
    assert path.stat().st_size < 1 << 20
    for number in range(3):
        replace(job(results, "odd", number=number), SAMPLES, path.read_bytes())
    commands = (
        ("report", "--format", "json", "-o", "report.json"),
        ("export", "--format", "sqlite", "--samples", "-o", "out.sqlite"),
        ("verify", "-o", "verified.md"),
    )
    for words, (code, mib, output) in zip(commands, _calls(*commands), strict=True):
        assert code == (1 if words[0] == "verify" else 0), output
        assert mib < _MOST_MIB, (words, mib)
    rows = {row["system"]: row for row in json.loads(Path("report.json").read_text())["rows"]}
    assert rows["good"]["latency"]["mean_s"]["value"] > 0 and rows["odd"]["latency"]["mean_s"]["value"] is None


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["huge ids, undeclared", "ids that share their beginning", "wide"])
def test_hostile_file_is_refused_in_one_line(tmp_path: Path, kind: str) -> None:
    path = tmp_path / SAMPLES
    _HOSTILE[kind](path)
    with pytest.raises(FileError, match=r"the limit is|one in each|has no size|encoding \(7\) that no samples have"):
        load_samples(path)


def test_bounds_hold_for_what_is_held_together(tmp_path: Path) -> None:
    path = tmp_path / SAMPLES
    _write(path, _table(200_000, [str(number) for number in range(1000)]))
    budget = cell_budget()
    assert load_samples(path, budget).num_rows == load_samples(path, budget).num_rows == 200_000
    with pytest.raises(FileError, match=r"needs 6,400,000 bytes of memory in addition to [0-9,]+; the limit is"):
        for _ in range(10):
            load_samples(path, budget)
    assert load_samples(path, SampleBudget()).num_rows == 200_000


@pytest.mark.slow
def test_honest_latencies_of_any_number_are_within_their_bounds(tmp_path: Path) -> None:
    path, chance = tmp_path / SAMPLES, np.random.default_rng(3)
    table = _table(600_000, [f"query-{number}" for number in range(6000)], columns=12)
    # Batches of an offline run share their times: no honest samples shrink more.
    shared = pa.array(np.repeat(chance.integers(10**6, 10**9, 600_000 // 32), 32))
    ids = table.column("query_id").take(pa.array(chance.permutation(600_000)))
    for number, name in enumerate(table.column_names):
        table = table.set_column(number, name, shared) if name.endswith("_ns") else table
    _write(path, table.set_column(0, "query_id", ids))
    assert load_samples(path, cell_budget()).num_rows == 600_000


@pytest.mark.slow
def test_warm_up_takes_no_room_in_a_cell(tmp_path: Path) -> None:
    path, table = tmp_path / SAMPLES, _table(200_000, [str(number) for number in range(1000)])
    trials = np.full(200_000, -1, np.int32)
    trials[-1000:] = 0
    _write(path, table.set_column(1, "trial", pa.array(trials)))
    budget = cell_budget()
    for _ in range(20):
        assert load_samples(path, budget).num_rows == 1000
    assert load_samples(path).num_rows == 200_000
