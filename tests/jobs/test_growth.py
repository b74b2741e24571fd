"""Figures of one number of documents foretell another's."""

from __future__ import annotations

import pytest

from harness.jobs import growth
from harness.jobs.estimates import RunModel
from harness.results.schema import Cell, Memory, Result
from tests.support import sample_records


@pytest.mark.parametrize(
    ("sizes", "documents", "wanted"),
    [
        ({1000: 3.0}, 5000, 15.0),  # one size: in proportion
        ({1000: 3.0, 2000: 4.0}, 1500, 3.5),  # between two
        ({1000: 3.0, 2000: 4.0}, 6000, 8.0),  # beyond the last: the line of the last two
        ({1000: 3.0, 2000: 3.0, 4000: 5.0}, 8000, 9.0),
        ({1000: 3.0, 2000: 4.0}, 500, 2.5),  # below the first
        ({1000: 3.0, 2000: 9.0}, 500, 1.5),  # ... and at least in proportion
        ({1000: 3.0, 2000: 2.0}, 6000, 3.0),  # noise: more documents do not cost less
    ],
)
def test_a_figure_at_another_size_is_on_the_line_of_the_nearest_two(
    sizes: dict[int, float], documents: int, wanted: float
) -> None:
    assert growth.at(sizes, documents) == pytest.approx(wanted)


def test_shipped_sweep_grows_and_scales_where_it_has_the_system() -> None:
    for figure in ("build_s", "index_bytes"):
        few, many = growth.shipped("bm25", figure, 30_000), growth.shipped("bm25", figure, 1_000_000)
        assert few is not None and many is not None and 0 < few < many
        assert growth.times("bm25", figure, 1_000_000, 30_000) == pytest.approx(many / few)
        assert growth.shipped("bm25@old", figure, 30_000) == few
    # A JVM starts once: 100 times the documents take far less than 100 times as long.
    assert growth.times("bm25", "build_s", 120_000, 1_200) < 20
    assert growth.shipped("other", "build_s", 30_000) is None and growth.times("other", "build_s", 3000, 1000) == 3.0


def test_builds_and_memory_of_other_sizes_of_a_dataset_count() -> None:
    def stored(documents: int) -> Result:
        return sample_records.result(
            cell=Cell("suite", "other", f"mine@{documents}", "single_stream", "cpu1-mem4"),
            index=sample_records.build(build_s=1 + documents / 1000),
            corpus_documents=documents,
            memory=Memory(peak_anon_bytes=documents * 1000),
        )

    one = RunModel([stored(1000)], job_timeout_s=7200, build_timeout_s=7200)
    assert one.build("other", "mine@4000", 4000).seconds == pytest.approx(8.0), "in proportion"
    assert one.memory_bytes("other", "mine@4000", 4000) is None, "one size says nothing of memory"
    two = RunModel([stored(1000), stored(2000)], job_timeout_s=7200, build_timeout_s=7200)
    build = two.build("other", "mine@4000", 4000)
    assert build.seconds == pytest.approx(5.0) and build.measured
    assert two.memory_bytes("other", "mine@4000", 4000) == pytest.approx(4_000_000)
    assert not two.build("other", "yours@4000", 4000).measured
    assert two.search(Cell("suite", "other", "mine@4000", "single_stream", "cpu1-mem4"), 100).measured
