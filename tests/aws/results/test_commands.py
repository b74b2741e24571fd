"""Every command that reads results reads them in S3, and says the same as of a folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

import harness as package
from harness.aws.results.mirror import FileSelection
from harness.cli import main
from scripts.docs import generate
from tests.aws.results.conftest import Bucket, tree

Call = Callable[..., Result]
HERE = "s3://bucket/results"
_SAME = {
    "report": ("report", "RESULTS"),
    "report-csv": ("report", "RESULTS", "--format", "csv"),
    "report-paper": ("report", "RESULTS", "--layout", "santhanam2023"),
    "leaderboard": ("leaderboard", "RESULTS", "--scenario", "single_stream"),
    "compare": ("compare", "planted/*/single_stream/*", "planted/*/single_stream/*", "--results", "RESULTS"),
    "compare-with": ("compare", "planted*", "planted*", "--results", "results", "--with", "RESULTS"),
    "verify": ("verify", "RESULTS"),
    "nothing-there": ("report", "RESULTS/nothing"),
    "one-suite": ("report", "RESULTS/test-suite"),
    "one-system": ("report", "RESULTS/test-suite/planted"),
}


@pytest.mark.parametrize("words", _SAME.values(), ids=_SAME)
def test_printed_output_equals_that_of_local_results(
    words: tuple[str, ...], results: Path, bucket: Bucket, harness: Call
) -> None:
    bucket.fill(results)
    local = harness(*(each.replace("RESULTS", "results") for each in words))
    there = harness(*(each.replace("RESULTS", HERE) for each in words))
    assert there.exit_code == local.exit_code
    assert there.stdout_bytes.replace(HERE.encode(), b"results") == local.stdout_bytes
    assert there.stderr.replace(HERE, "results") == local.stderr


@pytest.mark.parametrize("form", ["csv", "parquet", "sqlite", "ir_metadata"])
def test_export_equals_that_of_local_results(
    form: str, results: Path, bucket: Bucket, harness: Call, tmp_path: Path
) -> None:
    bucket.fill(results)
    made = []
    for name, place in (("local", "results"), ("there", HERE)):
        out = tmp_path / name / "out"
        out.parent.mkdir()
        assert harness("export", place, "--format", form, "-o", out).exit_code == 0
        made.append(tree(out.parent))
    assert made[0] == made[1] and made[0]


def test_published_tables_are_read_from_a_bucket(bucket: Bucket, harness: Call) -> None:
    shipped = Path(__file__).resolve().parents[3] / "results" / "published" / "santhanam2023"
    bucket.fill(shipped, "paper")
    local, there = harness("report", shipped), harness("report", "s3://bucket/paper")
    assert (there.exit_code, there.stdout) == (0, local.stdout)


def test_frames_equal_those_of_local_results(results: Path, bucket: Bucket) -> None:
    bucket.fill(results)
    assert package.load(HERE).equals(package.load("results"))
    assert package.load_samples(HERE).equals(package.load_samples(results))
    with pytest.raises(Exception, match='give the text "s3://'):
        package.load(Path(HERE))


def test_verify_reports_damage_in_s3(results: Path, bucket: Bucket, harness: Call) -> None:
    samples = next(results.rglob("planted/**/samples.parquet"))
    samples.write_bytes(b"nothing of the kind")
    (next(results.rglob("qrels/*"))).write_bytes(b"nor this")
    bucket.fill(results)
    local, there = harness("verify", "results"), harness("verify", HERE)
    assert (there.exit_code, there.stdout.replace(HERE, str(results))) == (local.exit_code, local.stdout)
    assert there.exit_code == 1 and "samples.parquet" in there.stdout and "qrels" in there.stdout


def test_verify_restores_a_changed_mirror(results: Path, bucket: Bucket, harness: Call) -> None:
    bucket.fill(results)
    assert harness("verify", HERE).exit_code == 0
    log = next((bucket.cache / "s3").rglob("log.txt.gz"))
    kept, content = log.stat(), log.read_bytes()
    with log.open("r+b") as file:  # the same inode, size and time
        file.write(bytes(len(content)))
    os.utime(log, ns=(kept.st_atime_ns, kept.st_mtime_ns))
    assert harness("verify", HERE).exit_code == 0
    assert log.read_bytes() == content


@pytest.mark.parametrize(
    "words",
    [
        ("report", "s3://no-such-bucket/x"),
        ("verify", "s3://no-such-bucket"),
        ("merge", "a=s3://no-such-bucket/x", "-o", "out"),
        ("compare", "a", "b", "--results", "s3://no-such-bucket/x"),
    ],
)
def test_missing_bucket_is_one_line_for_each_command(words: tuple[str, ...], bucket: Bucket, harness: Call) -> None:
    done = harness(*words)
    assert done.exit_code == 1 and done.stdout == ""
    assert done.stderr.startswith("harness: listing s3://no-such-bucket") and done.stderr.count("\n") == 1


@pytest.mark.parametrize("place", ["s3://", "s3://Bucket_/x", "s3://bucket/a//b", "s3://bucket/../x", "s3://bucket/.x"])
def test_a_wrong_name_is_one_line(place: str, harness: Call) -> None:
    done = harness("report", place)
    assert done.exit_code == 2 and done.stderr.count("\n") == 1 and "s3://" in done.stderr


def test_no_command_shows_a_path_of_the_mirror(bucket: Bucket, harness: Call) -> None:
    for words in (("report", HERE), ("verify", HERE), ("export", HERE, "--format", "csv", "-o", "x")):
        done = harness(*words)
        assert done.exit_code == 2 and str(bucket.cache) not in done.output and "s3://bucket/results:" in done.stderr


def test_every_command_with_results_accepts_s3() -> None:
    """A parameter that takes a folder of results is read by what knows s3://."""
    from harness.cli.options import results_path

    for name, command in generate.commands_of(main):
        for parameter in command.params:
            if parameter.name in ("results", "others", "contested"):
                assert getattr(parameter.type, "func", None) is results_path, (name, parameter.name)


def test_records_are_read_without_other_files(bucket: Bucket, results: Path) -> None:
    bucket.fill(results)
    jobs = bucket.place().folder / "test-suite" / "planted"
    bucket.sync(wants=FileSelection.RECORDS)
    assert {path.name for path in jobs.rglob("*.*")} == {"result.json"}
    bucket.sync(wants=FileSelection.FIGURES)
    assert {path.name for path in jobs.rglob("*.*")} == {"result.json", "samples.parquet", "run.trec.gz"}
