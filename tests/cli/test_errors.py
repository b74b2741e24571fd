"""Broken files of every kind that a person writes, given to every command that reads them: one line, exit code 2."""

from __future__ import annotations

import errno
import os
import re
import shutil
from pathlib import Path

import pytest

from harness.results import reader
from tests.conftest import Bench
from tests.support.command_line import Call

# Words of Python and of libraries, which no user should have to read.
RAW = re.compile(
    r"Traceback|codec|Expecting|Input should|should have|object has no|Error\b|Errno|NoneType|<class|line 1 column"
    r"|pydantic|pyarrow|Parquet magic|zstd|%Y|Invalid value \(at"
)
BROKEN = {
    "empty": b"",
    "binary": bytes(range(256)),
    "not UTF-8": b"a = 1\nb = '\xff'\n",
    "cut short": b'{"_id": "q0", "text": "wo',
    "a list": b"[1, 2, 3]\n",
    "too deep": b"[" * 100_000,
    "a huge number": b"a = " + b"1" * 5000 + b"\n",
    "damaged gzip": b"\x1f\x8b\x08\x00rest",
    "damaged Parquet": b"PAR1 and no more PAR1",
}
# A file of the bench, and the commands that read it.
READ_BY = {
    "suite.toml": ["run suite.toml --launcher process", "plan suite.toml --launcher process"],
    "engines/planted/systems/planted.toml": ["plan test-suite.toml --launcher process", "pin planted", "systems"],
    "engines/planted/engine.toml": ["conformance planted --launcher process"],
    "tiny/corpus.jsonl": ["run test-suite.toml --launcher process"],
    "tiny/queries.jsonl": ["plan test-suite.toml --launcher process"],
    "tiny/qrels.trec": [
        "run test-suite.toml --launcher process",
        "evaluate tiny/qrels.trec one.run",
        "compare one.run two.run --qrels tiny/qrels.trec",
        "robustness one.run two.run --qrels tiny/qrels.trec",
        "qrels show tiny/qrels.trec",
    ],
    "one.run": [
        "evaluate tiny/qrels.trec one.run",
        "compare one.run two.run --qrels tiny/qrels.trec",
        "robustness one.run two.run --qrels tiny/qrels.trec",
        "pool one.run two.run --qrels tiny/qrels.trec --no-texts",
        "leakage training.tsv one.run --qrels tiny/qrels.trec --queries tiny/queries.jsonl",
    ],
    "queries.tsv": [
        "pool one.run --queries queries.tsv --no-texts",
        "leakage training.tsv one.run --qrels tiny/qrels.trec --queries queries.tsv",
        "compare one.run two.run --qrels tiny/qrels.trec --queries queries.tsv",
    ],
    "training.tsv": ["leakage training.tsv one.run --qrels tiny/qrels.trec --queries tiny/queries.jsonl"],
    "judged.tsv": ["qrels add judged.tsv --to tiny/qrels.trec -o new.trec"],
    "vectors.parquet": ["frechet one.run --qrels tiny/qrels.trec --embeddings vectors.parquet"],
}


@pytest.fixture
def harness(tiny_runs: Call, bench: Bench) -> Call:
    bench.suite()
    shutil.copy("test-suite.toml", "suite.toml")
    Path("training.tsv").write_text("t1\tabout words\n")
    Path("stored").mkdir()
    return tiny_runs


# `harness systems` reads all that ship.
_EACH_FILE = [pytest.param(name, marks=pytest.mark.slow) if "systems" in READ_BY[name] else name for name in READ_BY]


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("name", _EACH_FILE)
def test_broken_file_is_one_line_in_every_command(harness: Call, name: str, content: bytes) -> None:
    Path(name).write_bytes(content)
    for command in READ_BY[name]:
        done = harness(*command.split())
        lines = [line for line in done.stderr.splitlines() if line.startswith("harness: ")]
        # Empty judgements are no broken file: a suite that cannot judge its queries fails.
        failed = 1 if (content, command.split()[0]) == (b"", "run") and name == "tiny/qrels.trec" else 2
        assert (done.exit_code, len(lines)) == (failed, 1), (command, done.output)
        assert Path(name).name in lines[0] or (content == b"" and "dataset tiny" in lines[0]), (command, lines)
        assert not RAW.search(lines[0]), (command, lines)
        assert len(lines[0]) < 500 and "; " in lines[0], f"no remedy: {lines[0]}"


@pytest.mark.parametrize("kind", ["missing", "a folder"])
@pytest.mark.parametrize("name", READ_BY)
def test_missing_file_is_one_line_in_every_command(harness: Call, name: str, kind: str) -> None:
    Path(name).unlink(missing_ok=True)
    if kind == "a folder":
        Path(name).mkdir()
    for command in READ_BY[name]:
        if (command, kind) == ("systems", "missing"):  # nobody asks for it by name
            continue
        done = harness(*command.split())
        lines = [line for line in done.stderr.splitlines() if line.startswith("harness: ")]
        assert (done.exit_code, len(lines)) == (2, 1), (command, done.output)
        assert not RAW.search(lines[0]) and "; " in lines[0], (command, lines)


@pytest.mark.slow
def test_broken_system_stops_no_command_about_others(harness: Call, bench: Bench) -> None:
    bench.plant("other")
    broken = Path("engines/planted/systems/broken.toml")
    broken.write_text('description = "x"\n[build_params]\nk1 = nan\n')
    listed = harness("systems")
    assert listed.exit_code == 2 and "| other " in listed.stdout and "| bm25 " in listed.stdout
    fault = "key 'build_params.k1' is nan or infinite; write text in quotes, a finite number, true or false"
    assert listed.stderr == f"harness: {broken.absolute()}: {fault}\n"
    assert harness("plan", "test-suite.toml", "--launcher", "process").exit_code == 0
    refused = harness("conformance", "broken", "--launcher", "process")
    assert refused.exit_code == 2 and refused.stderr.endswith(f"{fault}\n")


@pytest.mark.slow
def test_adapter_names_the_parameter_that_its_system_lacks_and_its_line(harness: Call) -> None:
    adapter = Path("engines/planted/adapter.py")
    lines = adapter.read_text().splitlines()
    at = next(number for number, line in enumerate(lines, 1) if "self._searches = self._updates = 0" in line)
    lines.insert(at, '        self.params["heap_mib"]')
    adapter.write_text("\n".join(lines))
    done = harness("conformance", "planted", "--launcher", "process")
    reason = "the system's file has no parameter 'heap_mib'; add it to build_params or search_params"
    assert f": MissingParameter: {reason} (adapter.py:{at + 1})" in done.stdout and done.exit_code == 1
    harness("run", "test-suite.toml", "--launcher", "process")
    explained = harness("explain", "planted").stdout
    assert f"{reason} (adapter.py:{at + 1})" in explained


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        ("run test-suite.toml --launcher fake --cache suite.toml", 2, "--cache': suite.toml: is a file; name a folder"),
        ("plan test-suite.toml --launcher fake --cache one.run/deep", 1, "Not a directory; name another place"),
        ("run test-suite.toml --launcher fake --results one.run", 1, "Not a directory; choose another --results"),
        ("run tiny --launcher fake", 2, "tiny: cannot be read: is a folder, no regular file; name a TOML file"),
        ("run none.toml --launcher fake", 2, "none.toml: key 'systems' has 0 entries; write 1 or more"),
        ("report one.run", 2, "one.run: cannot be read: Not a directory; name a folder"),
        ("report stored", 2, "stored: no finished job in it; run a suite first"),
        ("report nowhere", 2, "nowhere: no results here; run a suite first"),
        ("report loop", 2, "loop: "),
        ("leaderboard tiny", 2, "tiny: no finished job in it; run a suite first"),
        ("verify tiny", 2, "tiny: no stored job in it; give the folder that holds results"),
        ("merge tiny -o merged", 2, "tiny: holds no stored job; leave it out, or give a folder of results"),
        ("evaluate tiny tiny", 2, "tiny: is a folder; name a file"),
        ("evaluate tiny/qrels.trec one.run -o tiny", 2, "tiny: is a folder; name a file in it"),
        ("evaluate tiny/qrels.trec one.run -o loop/x", 2, "loop/x: cannot be written: "),
        ("evaluate tiny/qrels.trec one.run -o none/x", 2, "none/x: cannot be written: No such file or directory"),
    ],
)
def test_wrong_place_is_one_line_with_a_remedy(harness: Call, command: str, code: int, message: str) -> None:
    Path("none.toml").write_text('systems = []\ndatasets = ["./tiny"]\nprofiles = ["cpu1-mem1"]\n')
    Path("loop").symlink_to("loop")
    done = harness(*command.split())
    lines = [line for line in done.stderr.splitlines() if line.startswith(("harness: ", "Error: "))]
    assert (done.exit_code, len(lines)) == (code, 1), done.output
    assert message in lines[0] and "; " in lines[0] and "Errno" not in lines[0]


@pytest.mark.slow
def test_unreadable_result_is_no_damaged_one(harness: Call, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *_: int) -> bytes:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    harness("run", "test-suite.toml", "--launcher", "fake")
    monkeypatch.setattr(reader, "read_whole", refuse)
    done = harness("report")
    assert done.exit_code == 2 and "result.json: cannot be read: Permission denied; see to its perm" in done.stderr


def test_full_disk_below_the_output_is_named(monkeypatch: pytest.MonkeyPatch, harness: Call) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("harness.cli.output.Destination.show_report", full)
    done = harness("evaluate", "tiny/qrels.trec", "one.run")
    assert done.stderr == (
        "harness: the disk of the output, --results or --cache: No space left on device; make room, what was finished"
        " is kept\n"
    )
