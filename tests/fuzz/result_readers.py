"""Readers of results folders: single files, whole commands, cached rows."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from harness.analysis import first_stage, passport, results_folder, row_pricing, timings
from harness.cli import main
from harness.evaluation import answer_recall, trec
from harness.experiments.viability import probe
from harness.pricing import prices
from harness.results import foreign, foreign_formats, origins, pin_lock, reader, seals, suite_record, updates
from harness.results.isolation import CONTAINER
from tests.fuzz.child import Reader

_JOB = "results/*/planted/*/single_stream/*/*"
_LOCKED = {"hub": "someone/toy", "revision": "a" * 40, "newest": True, "sha256": {"w/model.bin": "0" * 64}}
_LOCK = pin_lock.PinLock.model_validate({"systems": {"planted": {"toy": _LOCKED}, "other": {"toy": _LOCKED}}})
_QUALITIES = (
    foreign.ForeignQuality(
        source="mteb", model="org/toy", task="SciFact", split="test", subset="default", measure="nDCG@10", value=0.5,
        file_sha256="0" * 64,
    ),
)  # fmt: skip
_VERDICT = {"unconstrained": {"jobs": [], "left_out": []}, "jobs": 0, "evidence": [], "version": 1}


@functools.cache
def stored() -> Path:
    """Return a small results folder: one system, one scenario, two jobs; made once a process, and then copied."""
    import atexit
    import tempfile

    from tests.conftest import make_bench
    from tests.support import results_folders

    folder = Path(tempfile.mkdtemp(prefix="harness-fuzz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    bench = make_bench(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_IMAGES", str(folder / "engines"))
        results_folders.make(bench)
    (suite,) = (path for path in bench.results.iterdir() if path.is_dir())
    shutil.rmtree(suite / "greedy")
    for scenario in ("offline", "server"):
        for path in suite.glob(f"planted/*/{scenario}"):
            shutil.rmtree(path)
    results_folders.relist(suite)
    (suite / pin_lock.FILE).write_bytes(pin_lock.content(_LOCK))
    seals.append(suite, pin_lock.FILE, hashlib.sha256(pin_lock.content(_LOCK)).hexdigest())
    (dataset,) = (suite / "planted").iterdir()
    (dataset / reader.VERDICTS).mkdir()
    verdict = {**_VERDICT, "seal": seals.of(_VERDICT)}
    (dataset / reader.VERDICTS / "cpu1-0.json").write_text(json.dumps(verdict), encoding="utf-8")
    return bench.results


def make(folder: Path) -> None:
    """Copy the results folder to ``results``."""
    shutil.copytree(stored(), folder / "results")


def _read_job(folder: Path, _scratch: Path) -> object:
    """Read all files of the stored jobs, each by its own reader."""
    jobs = reader.read_jobs(folder / "results")
    tables = [job.samples() for job in jobs]
    timed = timings.read(enumerate(tables))
    texts = [(job.sample_texts(), trec.read_stored_qrels(job.qrels_path())) for job in jobs]
    return [job.result for job in jobs], bool(timed), texts, [reader.read_job_run(job).rankings for job in jobs]


def _read_suite(folder: Path, _scratch: Path) -> object:
    root = folder / "results"
    (suite,) = (path for path in root.iterdir() if path.is_dir())
    pairs = suite_record.read_pairs(root, "firstp"), suite_record.read_positions_path(suite, "large")
    return suite_record.read_measures(root), pairs


def _read_table(folder: Path, _scratch: Path) -> object:
    return results_folder.read(folder / "results").table.rows


def _make_origin(folder: Path) -> None:
    (folder / "a").mkdir()
    (folder / "a" / origins.FILE).write_text(
        origins.text(origins.Origin(name="a", jobs=1, sha256="0")), encoding="utf-8"
    )


def _read_mark(folder: Path, _scratch: Path) -> object:
    return probe.read_mark(folder / "fresh-since") < datetime.now(UTC)


def _make_depths(folder: Path) -> None:
    import gzip

    depths = {f"q{n}": answer_recall.AnswerDepth(n or None, 100 + n, "ja") for n in range(20)}
    (folder / "depths.tsv.gz").write_bytes(gzip.compress(answer_recall.render_depths(depths), mtime=0))


def _make_updates(folder: Path) -> None:
    import gzip

    made = [updates.Update("insert", f"d{n}", n, 100 + n, 50, watched=n % 2 == 0, seen_ns=None) for n in range(20)]
    made += [updates.Update("check", f"d{n}", watched=True, seen_ns=n or None) for n in range(5)]
    (folder / "updates.tsv.gz").write_bytes(gzip.compress(updates.render(made), mtime=0))


def _make_first_stage(folder: Path) -> None:
    import gzip

    lines = "".join(f"q{q} Q0 d{rank} {rank} {-rank}.0 stored/bm25\n" for q in range(5) for rank in range(1, 4))
    (folder / "first_stage.trec.gz").write_bytes(gzip.compress(lines.encode(), mtime=0))


def _read_first_stage(folder: Path, _scratch: Path) -> object:
    path = folder / "first_stage.trec.gz"
    return first_stage._made_by(path, "rerank"), trec.read_run(path, 1000).rankings


def _make_cached(folder: Path) -> None:
    make(folder)
    _compare_first(results_folder.read(folder / "results", cache=folder / "cache"))


def _read_cached(folder: Path, scratch: Path) -> object:
    """Read rows and a test through a damaged cache, in a copy that may be written."""
    (scratch / "cache" / "tables").mkdir(parents=True)
    for path in (folder / "cache" / "tables").iterdir():
        _copy_odd(path, scratch / "cache" / "tables" / path.name)
    found = results_folder.read(folder / "results", cache=scratch / "cache")
    return found.table.rows, _compare_first(found)


def _compare_first(found: results_folder.ReadResults) -> object:
    first, last = found.table.rows[0], found.table.rows[-1]
    return found.compare(first, last, found.table.measures[0], 1)


def _copy_odd(source: Path, target: Path) -> None:
    """Copy a file; make what is no file anew."""
    if source.is_symlink():
        target.symlink_to(source.readlink() if source.readlink().is_absolute() else "elsewhere")
    elif source.is_dir():
        target.mkdir()
    elif source.is_file():
        shutil.copyfile(source, target)
    else:
        os.mkfifo(target)


def run(*arguments: str) -> str:
    """Run a command of harness as a person does; return its output; raise what the person would see a traceback of."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(list(arguments), prog_name="harness")
        except SystemExit as ended:
            code = ended.code
    assert code in (0, 1, 2), code
    text = out.getvalue() + err.getvalue()
    assert code == 0 or text.strip(), "an error without a message"
    assert "Traceback" not in text
    assert "\x1b" not in text and "\u202e" not in text, f"control characters: {text!r}"
    return text


@functools.cache
def _merged() -> Path:
    """Return what `harness merge` wrote of the results folder and of a second one."""
    first = stored()
    second, merged = first.with_name("second"), first.with_name("merged")
    shutil.copytree(first, second)
    (job, *_) = second.glob(f"{_JOB.removeprefix('results/')}")
    shutil.rmtree(job)
    (suite,) = (path for path in second.iterdir() if path.is_dir())
    from tests.support import results_folders

    results_folders.relist(suite)
    run("merge", str(first), str(second), "-o", str(merged))
    return merged


def _make_merged(folder: Path) -> None:
    shutil.copytree(_merged(), folder / "results")


def _command(
    name: str,
    words: Sequence[str],
    files: Sequence[str],
    make: Callable[[Path], None] = make,
    weight: float = 0.05,
) -> Reader:
    def read(folder: Path, scratch: Path) -> object:
        return run(*(word.format(results=folder / "results", folder=folder, scratch=scratch) for word in words))

    return Reader(f"harness {name}", make, read, tuple(files), weight=weight)


_DEEP_JOB = f"results/*/{_JOB.removeprefix('results/')}"
_ORIGIN = f"results/*/{origins.FILE}"
_RECORDS = (f"{_JOB}/result.json", "results/*/suite.json", "results/*/manifest.txt", f"results/*/{pin_lock.FILE}")
_CONTENT = (f"{_JOB}/samples.parquet", f"{_JOB}/run.trec.gz", "results/*/qrels/*.trec.gz", "results/*/samples/*.json")


def _make_passport(folder: Path) -> None:
    rows, (job, *_) = results_folder.read(stored()).table.rows, reader.read_jobs(stored())
    # The stored jobs are scripted, of which there are no passports.
    priced = row_pricing.price_row(replace(rows[0], isolation=CONTAINER), _tariff())
    entry = passport.of_row(priced, job, next(iter(priced.measures)), passport.Hub(source="https://example.org"))
    (folder / "a.yaml").write_text(passport.written([entry]), encoding="utf-8")


def _tariff() -> row_pricing.Tariff:
    return row_pricing.tariff(prices.snapshot(region="aws/us-east-1"))


def _read_passport(folder: Path, _scratch: Path) -> object:
    """Read a passport that a stranger has sealed again."""
    found = [{**raw, "seal": ""} for _, _, raw in passport.entries(folder / "a.yaml")]
    with contextlib.suppress(TypeError, ValueError):  # nothing can seal it
        found = [{**raw, "seal": seals.of(raw)} for raw in found]
    table = passport.table([passport.read_entry(folder / "a.yaml", 1, raw) for raw in found])
    return row_pricing.price(table, _tariff()).rows


def _make_foreign(folder: Path) -> None:
    make(folder)
    foreign.write(folder / "results", _QUALITIES, (), {"planted": "org/toy"}, datetime(2026, 11, 30, tzinfo=UTC).date())


def _read_foreign(folder: Path, _scratch: Path) -> object:
    return results_folder.read(folder / "results").table.rows


def _make_theirs(folder: Path) -> None:
    (folder / "org__toy" / "1").mkdir(parents=True)
    entry = {"hf_subset": "default", "languages": ["eng-Latn"], "main_score": 0.5, "ndcg_at_10": 0.5}
    task = {"task_name": "SciFact", "dataset_revision": "1", "mteb_version": "1.18.0", "scores": {"test": [entry]}}
    (folder / "org__toy" / "1" / "SciFact.json").write_text(json.dumps(task))
    (folder / "org__toy" / "1" / "model_meta.json").write_text(json.dumps({"name": "org/toy", "revision": "1"}))
    target = {"dataset_id": "d", "dataset_name": "d", "dataset_revision": "1", "split_name": "s", "task_name": "t"}
    found = {"aggregate_metric": "ndcg@10", "aggregate_metric_value": 0.5}
    hakari = {"model": {"id": "org/toy", "source": {"revision": "1"}}, "target": target, "evaluation": found}
    (folder / "h.json").write_text(json.dumps(hakari))
    (folder / "a.csv").write_text("algorithm,parameters,count,k-nn,qps,dataset\nhnsw,M=16,10,0.9,1000.0,glove\n")
    config = {
        "db": "PgVector",
        "db_config": {"db_label": "x"},
        "db_case_config": {"M": 16},
        "case_config": {"case_id": 5},
    }
    case = {"metrics": {"qps": 9.5, "recall": 0.9}, "task_config": config, "label": ":)"}
    (folder / "v.json").write_text(json.dumps({"results": [case]}))


def _theirs(source: str, name: str) -> Callable[[Path, Path], object]:
    return lambda folder, _: foreign_formats.read(source, [folder / name], frozenset({"nDCG@10"}))


READERS = (
    Reader("figures of others", _make_foreign, _read_foreign, (f"results/{foreign.FILE}",), weight=0.3),
    Reader(
        "results of MTEB",
        _make_theirs,
        _theirs("mteb", "org__toy/1/SciFact.json"),
        ("org__toy/1/SciFact.json", "org__toy/1/model_meta.json"),
    ),
    Reader("results of HAKARI", _make_theirs, _theirs("hakari", "h.json"), ("h.json",)),
    Reader("results of ann-benchmarks", _make_theirs, _theirs("ann-benchmarks", "a.csv"), ("a.csv",)),
    Reader("results of VectorDBBench", _make_theirs, _theirs("vectordbbench", "v.json"), ("v.json",)),
    Reader("passports", _make_passport, _read_passport, ("a.yaml",), weight=0.5),
    Reader("stored jobs", make, _read_job, (f"{_JOB}/result.json", *_CONTENT)),
    Reader("suite records", make, _read_suite, ("results/*/suite.json",)),
    Reader(
        "pins at first use",
        make,
        lambda folder, _: [pin_lock.read(path) for path in (folder / "results").iterdir()],
        (f"results/*/{pin_lock.FILE}",),
    ),
    Reader(
        "rows of results", make, _read_table, (f"{_JOB}/result.json", "results/*/suite.json", *_CONTENT), weight=0.2
    ),
    Reader(
        "manifests",
        make,
        lambda folder, _: [seals.read(path) for path in (folder / "results").iterdir()],
        ("results/*/manifest.txt",),
        errors=(OSError, ValueError),  # its callers say what to do
    ),
    Reader(
        "marks of fresh searches",
        lambda folder: (folder / "fresh-since").write_text("2026-11-20T10:00:00.000+00:00\n", encoding="ascii"),
        _read_mark,
        ("fresh-since",),
        weight=0.25,
    ),
    Reader("origins", _make_origin, lambda folder, _: origins.read(folder / "a"), (f"a/{origins.FILE}",)),
    Reader(
        "answer depths",
        _make_depths,
        lambda folder, _: answer_recall.read_depths(folder / "depths.tsv.gz"),
        ("depths.tsv.gz",),
    ),
    Reader(
        "updates",
        _make_updates,
        lambda folder, _: updates.read(folder / "updates.tsv.gz"),
        ("updates.tsv.gz",),
    ),
    Reader("first stages", _make_first_stage, _read_first_stage, ("first_stage.trec.gz",)),
    Reader(
        "cached rows",
        _make_cached,
        _read_cached,
        ("cache/tables/*.rows.cache", "cache/tables/*.queries.parquet"),
        weight=0.2,
    ),
    _command("report", ("report", "{results}", "--wide"), (*_RECORDS, *_CONTENT)),
    _command(
        "report --format html", ("report", "{results}", "--format", "html", "-o", "{scratch}/page.html"), _RECORDS
    ),
    _command("leaderboard", ("leaderboard", "{results}"), _RECORDS),
    _command("explain", ("explain", "planted", "--results", "{results}"), _RECORDS),
    _command(
        "verify", ("verify", "{results}"), (*_RECORDS, *_CONTENT, f"{_JOB}/log.txt.gz", "results/*/*/*/verdicts/*.json")
    ),
    _command("merge", ("merge", "{results}", "-o", "{scratch}/merged"), (*_RECORDS, f"{_JOB}/log.txt.gz")),
    # Below their origins, results are as any other.
    _command("report of merged results", ("report", "{results}"), (_ORIGIN,), _make_merged, 0.02),
    _command("verify of merged results", ("verify", "{results}"), (_ORIGIN,), _make_merged, 0.02),
    _command(
        "merge of merged results",
        ("merge", "{results}", "-o", "{scratch}/merged"),
        (_ORIGIN, f"{_DEEP_JOB}/result.json"),
        _make_merged,
        0.02,
    ),
    _command(
        "export",
        ("export", "{results}", "--samples", "--format", "sqlite", "-o", "{scratch}/x.sqlite"),
        (*_RECORDS, *_CONTENT),
    ),
)
