"""Every module that reads files is fuzzed, or says why no stranger's file reaches it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.fuzz.readers import READERS

_ROOT = Path(__file__).resolve().parents[2]
_READS = re.compile(
    r"\.read_text\(|\.read_bytes\(|read_whole\(|read_start\(|read_named\(|open_regular\(|read_toml\(|json\.loads?\("
    r"|parse_json\(|validate_json\(|pq\.(?:ParquetFile|read)|tarfile\.open\(|gzip\.(?:open|GzipFile|decompress)\("
    r"|zipfile\.(?:ZipFile|is_zipfile)|csv\.reader\(|\bfile\.read\(|\blog\.read\(|os\.read\(|\[\"Body\"\]|\.logs\(|iter_lines|np\.load\(|yaml\.safe_load|\.open\(\"rb\"\)|\.open\(encoding"
)
# Module of harness -> a reader that covers it.
FUZZED = {
    "analysis/first_stage": "first stages",
    "analysis/published": "published santhanam2023",
    "analysis/published_measures": "published boytsov2025",
    "analysis/rejudge": "leaked queries",
    "analysis/row_cache": "cached rows",
    "aws/batch/agent/container": "launches",
    "remote/archive": "archives",
    "remote/journal": "listings of S3",
    "remote/local_results": "uploaded jobs",
    "remote/records": "records of workers",
    "remote/worker": "records of workers",
    "aws/results/mirror": "listings of S3",
    "aws/results/publish": "locks of results",
    "config": "suites",
    "containment": "wheels",
    "datasets/__init__": "licences",
    "datasets/corpus": "harness datasets",
    "datasets/dureader": "DuReader-retrieval datasets",
    "datasets/dureader_questions": "questions of DuReader 2.0",
    "datasets/passage_matching": "judged chunks",
    "datasets/licence": "licences",
    "datasets/native": "copied datasets",
    "datasets/passage_positions": "positions",
    "datasets/source": "BEIR datasets",
    "datasets/trec": "TREC datasets",
    "datasets/xor_tydi": "XOR-TyDi datasets",
    "driver/subprocess_adapter": "replies of engines",
    "evaluation/answer_recall": "answer depths",
    "evaluation/embeddings": "vectors",
    "evaluation/judged_runs": "queries",
    "evaluation/per_query": "cached rows",
    "evaluation/pool": "graded pools",
    "evaluation/qrels_merge": "merged qrels",
    "evaluation/trec_lines": "run files",
    "experiments/viability/probe": "marks of fresh searches",
    "jobs/collect": "a job's output",
    "jobs/environment": "instance metadata",
    "jobs/encode": "flat indexes",
    "jobs/indexes": "indexes",
    "jobs/job_samples": "a job's output",
    "jobs/suite": "suites",
    "launch/images/assets": "wheels",
    "launch/images/catalog": "systems",
    "launch/images/dockerfile": "engine folders",
    "launch/images/locks": "engine folders",
    "launch/images/pins": "folders of models",
    "launch/images/recipes": "engine folders",
    "launch/watch": "events",
    "pricing/instances": "hardware",
    "pricing/token_prices": "token prices",
    "results/integrity": "harness verify",
    "results/merge": "harness merge",
    "results/origins": "origins",
    "results/parquet_pages": "stored jobs",
    "results/pin_lock": "pins at first use",
    "results/reader": "stored jobs",
    "results/samples": "stored jobs",
    "results/seals": "manifests",
    "results/store": "uploaded jobs",
    "results/suite_record": "suite records",
    "untrusted": "stored jobs",
}
# Module of harness -> what it reads, which no stranger writes.
OWN = {
    "aws/batch/agent/host": "the agent's own files",
    "aws/batch/suite_stack": "a template of harness",
    "aws/clients": "the name of this machine's owner",
    "aws/ec2/user_data": "a shipped script",
    "remote/folder_worker": "archives, which `archives` covers",
    "remote/shared_folder": "bytes that `records of workers` and `archives` parse",
    "remote/bundle": "files that go to workers, unread",
    "remote/ledger": "what this machine has written",
    "remote/shipment": "archives, which `archives` covers",
    "aws/ec2/account": "policies that AWS returns",
    "aws/templates/__init__": "shipped files",
    "aws/objects": "files that go to S3, unread",
    "cli/__init__": "harness' own code",
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
    "launch/docker": "the end of a job's log, as bytes",
    "launch/fake": "a corpus that the host has prepared; for tests",
    "launch/images/base_image": "shipped files",
    "launch/images/driver_code": "the package's own sources",
    "launch/images/engine_build": "what the Docker engine answers; a build's words come as its JSON",
    "launch/images/emulation": "the kernel's files",
    "launch/monitor/canary": "the kernel's files",
    "launch/monitor/sources": "the kernel's files",
    "launch/process": "the end of a job's log, as bytes",
    "driver/records": "the spec, which the host has written",
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
    assert reading - FUZZED.keys() - OWN.keys() == set(), "add a reader to tests/fuzz, or say whose files it reads"


def test_every_module_names_a_reader_that_exists() -> None:
    assert {reader for reader in FUZZED.values() if reader not in READERS} == set()
    assert FUZZED.keys() & OWN.keys() == set()
