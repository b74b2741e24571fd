"""`harness verify` on the run of a first stage, and on counts of work."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.results import integrity_samples, reader
from harness.results.integrity_samples import Runs
from harness.results.reader import StoredJob
from tests.support import publisher
from tests.support.publisher import DEPTH, Made


def stored(root: Path, **changes: object) -> StoredJob:
    """One job whose second stage moved the judged document from rank 15 to the first."""
    made = Made("both", 10.0, (1,), jobs=1, first=(15,), counts={"tokens": 100, "padded_tokens": 120})
    publisher.put(root, made.__class__(**{**vars(made), **changes}))
    (job,) = reader.read_jobs(root)
    return job


def wrong(job: StoredJob) -> list[str]:
    return [str(mismatch) for mismatch in Runs().check_first_stage(job)]


def rewrite(job: StoredJob, *lines: Sequence[object]) -> None:
    path = job.folder / reader.FIRST_STAGE
    text = gzip.decompress(path.read_bytes()).decode()
    text += "".join(" ".join(map(str, line)) + "\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode()))


def test_a_sound_first_stage_has_every_hit_of_the_run(tmp_path: Path) -> None:
    assert wrong(stored(tmp_path)) == []


def test_a_hit_that_the_first_stage_never_found_is_named(tmp_path: Path) -> None:
    # The first stage has the judged document at rank 2 where the run still ranks `wrong2`.
    (found,) = wrong(stored(tmp_path, first=(2,)))
    assert found == (
        "first_stage.trec.gz: stored: not there; follows: document 'wrong2' of query 'q000', which run.trec.gz ranks"
    )


def test_strange_queries_and_hits_beyond_the_depth_are_named(tmp_path: Path) -> None:
    job = stored(tmp_path)
    rewrite(job, ("q000", "Q0", "more", DEPTH + 1, "0.5", "bm25"), ("other", "Q0", "d", 1, "1.0", "bm25"))
    assert [text.partition("; follows: ")[2] for text in wrong(job)] == ["queries of its sample alone", "at most 20"]


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({"tokens": 120, "padded_tokens": 120}, []),
        ({"tokens": 121, "padded_tokens": 120}, ["samples.parquet: count_tokens"]),
        ({"pairs": -1}, ["samples.parquet: count_pairs"]),
    ],
)
def test_counts_that_cannot_be_are_named(tmp_path: Path, counts: dict[str, int], expected: list[str]) -> None:
    found = integrity_samples.check(stored(tmp_path, counts=counts))
    assert [mismatch.place for mismatch in found if "count_" in mismatch.place] == expected
