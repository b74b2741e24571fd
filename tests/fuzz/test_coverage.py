"""Every module that reads files is fuzzed, or says why no stranger's file reaches it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[2]
_READS = re.compile(
    r"\.read_text\(|\.read_bytes\(|read_whole\(|read_start\(|read_named\(|open_regular\(|read_toml\(|json\.loads?\("
    r"|parse_json\(|validate_json\(|pq\.(?:ParquetFile|read)|tarfile\.open\(|gzip\.(?:open|GzipFile|decompress)\("
    r"|zipfile\.(?:ZipFile|is_zipfile)|csv\.reader\(|\bfile\.read\(|\blog\.read\(|os\.read\(|\[\"Body\"\]|\.logs\(|iter_lines|np\.load\(|yaml\.safe_load|\.open\(\"rb\"\)|\.open\(encoding"
)


def _modules(folder: str, names: str) -> tuple[str, ...]:
    return tuple(f"{folder}/{name}".lstrip("/") for name in names.split())


# Modules of harness whose files a reader of ``tests.fuzz.readers`` damages.
FUZZED = {
    *_modules("", "config containment untrusted"),
    *_modules("analysis", "first_stage passport published published_measures rejudge row_cache"),
    *_modules("aws/results", "mirror publish"),
    *_modules(
        "datasets",
        "__init__ corpus dureader dureader_questions passage_matching native passage_positions source",
    ),
    *_modules(
        "datasets",
        "trec xor_tydi",
    ),
    *_modules("driver", "subprocess_adapter"),
    *_modules("evaluation", "answer_recall embeddings judged_runs per_query pool qrels_merge trec_lines"),
    *_modules("experiments/viability", "probe"),
    *_modules("jobs", "collect encode environment indexes job_samples job_updates suite"),
    *_modules("launch", "service watch"),
    *_modules("launch/images", "assets catalog dockerfile image_archive locks pins recipes registry"),
    *_modules("pricing", "bill dated_files instances prices"),
    *_modules("remote", "archive journal local_results records stage worker"),
    *_modules(
        "results",
        "foreign foreign_formats integrity merge origins parquet_pages pin_lock reader samples seals store",
    ),
    *_modules("results", "suite_record updates"),
}
# Module of harness -> what it reads, which no stranger writes.
OWN = {
    "aws/batch/agent/container": "a bundle, whose hash it checks",
    "aws/batch/agent/host": "the agent's own files",
    "aws/batch/suite_stack": "a template of harness",
    "aws/clients": "the name of this machine's owner",
    "aws/ec2/user_data": "a shipped script",
    "report/otava": "the answer of a program that this user has installed",
    "remote/shared_folder": "bytes that `records of workers` and `archives` parse",
    "remote/bundle": "files that go to workers, unread",
    "remote/shipment": "archives, which `archives` covers, and what this machine has written",
    "aws/ec2/account": "policies that AWS returns",
    "aws/templates/__init__": "shipped files",
    "aws/prices/addition": "facts, prices and checksums that this user has fetched or written",
    "aws/prices/download": "AWS's price list; tests/aws/prices damages what a server answers",
    "aws/objects": "files that go to S3, unread",
    "cli/__init__": "harness' own code",
    "jobs/command_suite": "this user's own suite",
    "jobs/growth": "shipped figures",
    "cli/locations": "files that go to S3, unread",
    "datasets/generate/collection": "what it has just written",
    "datasets/generate/wordpieces": "a shipped vocabulary",
    "driver/adapter": "a corpus that the host has prepared",
    "driver/component": "files of its own image",
    "driver/driver": "files that the host has written",
    "driver/envelope": "the kernel's files",
    "driver/procfs": "the kernel's files",
    "evaluation/frechet_distance": "a memory file of its own",
    "experiments/viability/smallest": "a record of its own, as JSON",
    "filesystem": "files as bytes, to hash them; the kernel's files",
    "jobs/attach_suite": "this user's own suite",
    "launch/attached": "the end of a job's log, as bytes; and, bounded, the outcome that a build wrote",
    "launch/credentials": "a job's lines, whose texts it replaces and does not believe",
    "launch/gate": "the end of a job's log, and its holder's words, as bytes",
    "launch/container": "the kernel's files",
    "launch/fake": "a corpus that the host has prepared; for tests",
    "launch/images/base_image": "shipped files",
    "launch/images/driver_code": "the package's own sources",
    "launch/images/debian": "shipped locks, which pin each package by its hash",
    "launch/images/engine_build": "what the Docker engine answers; a build's words come as its JSON",
    "launch/images/emulation": "the kernel's files",
    "launch/monitor/canary": "the kernel's files",
    "launch/monitor/kernel_log": "the kernel's log",
    "launch/monitor/instructions": "the kernel's counters",
    "launch/monitor/sources": "the kernel's files",
    "launch/podman": "the log of a service that it has started",
    "launch/process": "the end of a job's log, as bytes",
    "driver/records": "the spec, which the host has written",
    "driver/serve": "the spec, which the host has written",
    "report/ir_metadata": "what it has just written",
    "report/page/__init__": "shipped files",
}


@pytest.mark.slow
def test_every_module_that_reads_files_is_fuzzed_or_reads_none_of_a_stranger() -> None:
    package = _ROOT / "harness"
    reading = {
        path.relative_to(package).with_suffix("").as_posix()
        for path in package.rglob("*.py")
        if _READS.search(path.read_text(encoding="utf-8"))
    }
    assert reading - FUZZED - OWN.keys() == set(), "add a reader to tests/fuzz, or say whose files it reads"


def test_no_module_is_listed_twice_or_gone() -> None:
    assert FUZZED & OWN.keys() == set()
    assert [name for name in FUZZED | OWN.keys() if not (_ROOT / "harness" / f"{name}.py").is_file()] == []
