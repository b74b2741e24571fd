"""Metadata of jobs say what is known of them, under the schema's names, and make nothing up."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.errors import FileError, UsageError
from harness.evaluation import measure_names
from harness.report.ir_metadata import export_ir_metadata
from harness.results import reader
from tests.support.results_folders import change, job, put

SECTIONS = {"platform", "implementation", "resources", "method", "research goal", "data", "actor"}


def exported(results: Path, out: str = "meta", **options: Any) -> dict[str, dict[str, Any]]:
    jobs = reader.read_jobs(results)
    export_ir_metadata(results, jobs, measure_names.DEFAULT, Path(out), **options)
    return {path.parent.name: yaml.safe_load(path.read_text()) for path in Path(out).rglob("ir-metadata.yml")}


@pytest.mark.slow
def test_each_job_has_a_metadata_file_beside_its_run(results: Path) -> None:
    result = exported(results, actor={"name": None, "team": "Our team"})
    folder = job(results)
    made = result[folder.name]
    record = reader.read_result(folder / reader.RESULT)
    assert made.keys() - {"tag", "schema version", "harness"} == SECTIONS
    assert made["tag"] == "planted"
    assert made["platform"]["hardware"]["cpu"]["model"] == record.environment.cpu_model
    assert made["platform"]["operating system"] == {"kernel": record.environment.kernel}
    assert made["platform"]["software"]["libraries"] == ["fake==1"]
    assert made["implementation"]["source"].get("commit") == record.environment.harness_commit
    assert made["resources"]["runtime"]["wallclock"] == "60000 ms"
    assert made["resources"]["ram"] == {"used process": {"max": "102400 KB"}}
    assert made["data"]["test collection"]["qrels"] == f"sha256:{record.spec.qrels_sha256}"
    assert made["harness"]["key"] == folder.name and "origin" not in made["harness"]
    evaluation = made["research goal"]["evaluation"]
    assert evaluation["reported measures"] == list(measure_names.DEFAULT)
    assert evaluation["values"]["Success@10"] == 1.0 and evaluation["judged queries"] == 40
    failed = result[job(results, "greedy").name]
    assert "research goal" not in failed and failed["harness"]["outcome"] == "oom"
    for each in result.values():
        assert each["actor"] == {"team": "Our team"} and not list(holes(each)), "unknown facts are left out"
        assert "gpu" not in each["platform"]["hardware"] and "gpu" not in each["resources"]
    run = Path("meta") / folder.relative_to(results) / "run.txt.gz"
    assert gzip.decompress(run.read_bytes()) == gzip.decompress((folder / reader.RUN).read_bytes())


def holes(value: Any) -> Any:
    if value is None or value == {} or value == []:
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from holes(each)


@pytest.mark.slow
def test_run_that_cannot_be_evaluated_has_a_reason(results: Path) -> None:
    folder = job(results)
    put(folder / reader.RUN, b"no gzip")
    evaluation = exported(results)[folder.name]["research goal"]["evaluation"]
    assert "values" not in evaluation and "damaged" in evaluation["not computed"]


@pytest.mark.slow
def test_untrusted_texts_are_harmless(results: Path) -> None:
    """Neither YAML's own signs nor characters that turn a line around."""
    nasty = "!!python/object/apply:os.system ['x'] & *a : {\u202e"
    folder = job(results)
    change(folder, lambda raw: raw["provenance"].update(stand_in=nasty))
    made = exported(results)[folder.name]
    assert "!!python/object" in made["method"]["description"]
    assert {path.relative_to("meta").parts[0] for path in Path("meta").rglob("*.yml")} == {"test-suite"}


@pytest.mark.slow
def test_a_run_that_is_a_link_is_not_followed_but_named(results: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = job(results) / "run.trec.gz"
    path.unlink()
    path.symlink_to("/dev/zero")
    exported(results)
    assert "run.trec.gz: cannot be read: is a link, no regular file" in caplog.text
    assert not (Path("meta") / path.parent.relative_to(results) / "run.txt.gz").is_symlink()
    assert len(list(Path("meta").rglob("run.txt.gz"))) == len(list(results.rglob("run.trec.gz"))) - 1


@pytest.mark.slow
def test_nonempty_folder_is_left_unchanged(results: Path) -> None:
    Path("meta").mkdir()
    (Path("meta") / "mine").write_text("")
    with pytest.raises(FileError, match="meta: exists already, and harness does not overwrite it"):
        exported(results)
    Path("empty").mkdir()
    assert exported(results, "empty")


def test_a_failed_export_leaves_no_file(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="unknown measure"):
        export_ir_metadata(results, reader.read_jobs(results), ("none@1",), Path("meta"))

    def stop(done: int, _total: int = 0, _phase: str = "", /) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_ir_metadata(results, reader.read_jobs(results), (), Path("meta"), progress=stop)
    assert not Path("meta").exists() and not list(Path().glob("meta*"))
