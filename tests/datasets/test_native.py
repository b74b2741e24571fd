"""Reading a dataset line by line; a wrong line is named by file, number and fault."""

from __future__ import annotations

import gzip
import json
import os
import stat
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from harness import datasets
from harness.datasets import native
from harness.driver.records import Query
from harness.errors import FileError, HarnessError
from tests.conftest import write_dataset
from tests.datasets.conftest import load, load_error


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return write_dataset(tmp_path / "tiny", queries=8)


def test_valid_dataset_is_read_completely(tiny: Path) -> None:
    dataset = load(tiny)
    assert dataset.name == "tiny"
    assert dataset.corpus.size == 10
    assert dataset.queries[0] == Query("q0", "where is the river")
    assert dataset.qrels.splitlines()[0] == b"q0 0 d0 1"
    lines = (dataset.corpus.folder / "corpus.jsonl").read_text().splitlines()
    assert json.loads(lines[0]) == {"_id": "d0", "title": "river", "text": "all about the river"}


def test_faults_are_counted_with_an_example(tiny: Path) -> None:
    assert load(tiny).faults == ()
    with (tiny / "corpus.jsonl").open("a") as corpus, (tiny / "queries.jsonl").open("a") as queries:
        corpus.write('{"_id": "nothing", "title": "", "text": " "}\n')
        queries.write('{"_id": "q99", "text": " "}\n')
    dataset = load(tiny)
    assert [fault.text for fault in replace(dataset, qrels=dataset.qrels + b"q1 0 d77 1\nq77 0 d1 1\n").faults] == [
        "1 of 11 documents are empty",
        "1 of 11 queries are blank, such as 'q99'; they are asked anyway",
        "1 of 10 judgements are of documents that the corpus lacks, such as 'd77'; no system can find them",
        "1 of 10 judgements are of queries that the dataset lacks, such as 'q77'; they count for nothing",
    ]


WRONG_LINES = {
    "no JSON": (b'{"_id": \n', "not valid JSON: ends too early; correct the line"),
    "deep JSON": (b"[" * 100_000 + b"\n", "not valid JSON: nested too deep"),
    "no object": (b"[1]\n", "no object in curly brackets; correct the line"),
    "no id": (b'{"text": "t"}\n', "key '_id' is missing"),
    "no text": (b'{"_id": "x"}\n', "key 'text' is missing"),
    "null text": (b'{"_id": "x", "text": null}\n', "key 'text' is missing"),
    "a fraction as id": (b'{"_id": 7.5, "text": "t"}\n', "key '_id' is not a text; write it in quotes"),
    "a list as text": (b'{"_id": "x", "text": []}\n', "key 'text' is not a text; write it in quotes"),
    "an empty id": (b'{"_id": "", "text": "t"}\n', "id '' must be 1 to 256 characters with no blanks"),
    "a blank in an id": (b'{"_id": "a b", "text": "t"}\n', "id 'a b' must be"),
    "a line end in an id": (b'{"_id": "a\\nb", "text": "t"}\n', "id 'a\\nb' must be"),
    "a surrogate in an id": (b'{"_id": "\\ud800", "text": "t"}\n', "id '\\ud800' must be"),
    "no UTF-8": (b'{"_id": "x", "text": "\xff"}\n', "byte 0xff is not UTF-8; save the file as UTF-8"),
}


@pytest.mark.parametrize("name", ["corpus.jsonl", "queries.jsonl"])
@pytest.mark.parametrize("wrong", WRONG_LINES)
def test_a_wrong_line_is_named(tiny: Path, name: str, wrong: str) -> None:
    content, what = WRONG_LINES[wrong]
    path = tiny / name
    # A blank line counts as a line and is nothing else.
    path.write_bytes(path.read_bytes() + b"\n" + content)
    number = path.read_bytes().count(b"\n")
    assert load_error(tiny).startswith(f"{path}: line {number}: {what}")


@pytest.mark.parametrize(("name", "known"), [("corpus.jsonl", "d0"), ("queries.jsonl", "q0")])
def test_duplicate_id_is_named(tiny: Path, name: str, known: str) -> None:
    lines = (tiny / name).read_text().splitlines(keepends=True)
    (tiny / name).write_text("".join([*lines[:2], lines[0], *lines[2:]]))
    assert load_error(tiny) == f"{tiny / name}: line 3: id {known!r} comes twice; rename or remove one"


def test_judgements_are_normalised_to_one_form(tiny: Path) -> None:
    (tiny / "qrels.trec").write_bytes(b"\xef\xbb\xbfq1\t0\td1\t-1\r\n\nq2  0 d2   2")
    assert load(tiny).qrels == b"q1 0 d1 -1\nq2 0 d2 2\n"


def test_byte_order_mark_is_ignored(tiny: Path) -> None:
    for name in ("corpus.jsonl", "queries.jsonl"):
        (tiny / name).write_bytes(b"\xef\xbb\xbf" + (tiny / name).read_bytes())
    assert load(tiny).corpus.size == 10


def zstd(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


def compress(path: Path, suffix: str) -> Path:
    packed = path.with_name(path.name + suffix)
    content = path.read_bytes()
    packed.write_bytes(gzip.compress(content, mtime=0) if suffix == ".gz" else zstd(content))
    path.unlink()
    return packed


def test_zstd_files_of_several_frames_give_the_same_dataset(tiny: Path) -> None:
    plain, lines = load(tiny), (tiny / "corpus.jsonl").read_bytes().splitlines(keepends=True)
    for name in ("corpus.jsonl", "queries.jsonl", "qrels.trec"):
        compress(tiny / name, ".zst")
    (tiny / "corpus.jsonl.zst").write_bytes(b"".join(zstd(line) for line in lines))
    packed = load(tiny)
    assert (packed.corpus.sha256, packed.queries, packed.qrels) == (plain.corpus.sha256, plain.queries, plain.qrels)


def test_an_empty_corpus_is_refused(tiny: Path) -> None:
    (tiny / "corpus.jsonl").write_text("\n\n")
    assert load_error(tiny) == f"{tiny / 'corpus.jsonl'}: no documents in it; give at least one"


def test_a_lone_surrogate_in_a_text_becomes_a_question_mark(tiny: Path) -> None:
    (tiny / "queries.jsonl").write_text('{"_id": "q0", "text": "a\\ud800b"}\n')
    (tiny / "qrels.trec").write_text("q0 0 d0 1\n")
    (tiny / "corpus.jsonl").write_text('{"_id": "d0", "title": "c\\udc00", "text": "\\ud800"}\n')
    dataset = load(tiny)
    assert dataset.queries == (Query("q0", "a?b"),)
    assert json.loads((dataset.corpus.folder / "corpus.jsonl").read_bytes())["title"] == "c?"


def test_a_corpus_is_prepared_once_for_each_content(tiny: Path) -> None:
    first = load(tiny).corpus
    made = (first.folder / "corpus.jsonl").stat().st_mtime_ns
    assert load(tiny).corpus == first
    assert (first.folder / "corpus.jsonl").stat().st_mtime_ns == made
    with (tiny / "corpus.jsonl").open("a") as file:
        file.write('{"_id": "new", "text": "more"}\n')
    assert load(tiny).corpus.folder != first.folder


def test_other_users_can_read_the_corpus_under_any_umask(tiny: Path) -> None:
    before = os.umask(0o077)
    try:
        folder = load(tiny).corpus.folder
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o644}


def test_a_sample_is_fixed_by_the_seed_and_never_warmed_up(tiny: Path) -> None:
    dataset = load(tiny)
    drawn = datasets.draw_sample(dataset, 4, 3, 2023)
    assert drawn == datasets.draw_sample(dataset, 4, 3, 2023)
    # Written down once: another choice would make stored results incomparable.
    assert [query.query_id for query in drawn.sample] == ["q2", "q4", "q5", "q7"]
    assert [query.query_id for query in drawn.warmup] == ["q3", "w0", "q6"]
    assert drawn.sample != datasets.draw_sample(dataset, 4, 3, 2024).sample
    assert not {query.query_id for query in drawn.sample} & {query.query_id for query in drawn.warmup}


def test_queries_outside_the_sample_warm_up(tiny: Path) -> None:
    drawn = datasets.draw_sample(load(tiny), 6, 5, 0)
    assert len(drawn.warmup) == 4 and drawn.timed == drawn.sample and not drawn.held_out
    assert drawn == datasets.draw_sample(load(tiny), 6, 5, 0)


def ask(folder: Path, texts: dict[str, str], judged: int | None = None) -> None:
    """Write other queries, of which the first are judged."""
    (folder / "queries.jsonl").write_text("".join(f'{{"_id": "{q}", "text": "{t}"}}\n' for q, t in texts.items()))
    (folder / "qrels.trec").write_text("".join(f"{query} 0 d1 1\n" for query in list(texts)[:judged]))


@pytest.mark.parametrize(("queries", "wanted", "held"), [(40, 100, 8), (40, 5, 5), (8, 5, 1), (2, 5, 1)])
def test_fifth_of_the_sample_warms_up_if_all_queries_are_judged(
    tiny: Path, queries: int, wanted: int, held: int
) -> None:
    """They stay in the sample, which is judged as a whole, and are not timed."""
    ask(tiny, {f"q{number}": f"text of {number}" for number in range(queries)})
    drawn = datasets.draw_sample(load(tiny), 1000, wanted, 0)
    assert len(drawn.sample) == queries and {each.query_id for each in drawn.warmup} == drawn.held_out
    assert len(drawn.held_out) == held and len(drawn.timed) == queries - held


def test_warm_up_fills_its_fifth_from_outside_the_sample_first(tiny: Path) -> None:
    ask(tiny, {f"q{number}": f"text of {number}" for number in range(40)}, judged=35)
    drawn = datasets.draw_sample(load(tiny), 1000, 100, 0)
    assert len(drawn.warmup) == 7 and len(drawn.held_out) == 2


def test_timed_text_does_not_warm_up(tiny: Path) -> None:
    ask(tiny, {"q0": "ice", "q1": "ice", "q2": "lava"})
    assert datasets.draw_sample(load(tiny), 1000, 5, 0).held_out == {"q2"}
    ask(tiny, {"q0": "ice", "q1": "ice"})
    with pytest.raises(FileError, match="2 queries leave none to warm up with; add queries with other texts"):
        datasets.draw_sample(load(tiny), 1000, 5, 0)


def test_query_of_the_same_words_does_not_warm_up(tiny: Path) -> None:
    with (tiny / "queries.jsonl").open("a") as file:
        file.writelines(f'{{"_id": "twin{n}", "text": "where is the river"}}\n' for n in range(5))
    (tiny / "qrels.trec").write_text("q0 0 d0 1\n")
    drawn = datasets.draw_sample(load(tiny), 1, 7, 0)
    assert [query.query_id for query in drawn.sample] == ["q0"]
    assert "where is the river" not in {query.text for query in drawn.warmup}


def test_only_judged_queries_are_drawn(tiny: Path) -> None:
    (tiny / "qrels.trec").write_text("q3 0 d1 1\nq5 0 d1 0\n")
    assert [query.query_id for query in datasets.draw_sample(load(tiny), 1000, 1, 0).sample] == ["q3", "q5"]


def test_unjudged_queries_fill_the_sample_only_if_asked(tiny: Path) -> None:
    ask(tiny, {f"q{number:02}": f"text of {number}" for number in range(60)}, judged=10)
    dataset = load(tiny)
    plain = datasets.draw_sample(dataset, 1000, 20, 0)
    assert (len(plain.sample), len(plain.warmup)) == (10, 20)
    filled = datasets.draw_sample(dataset, 30, 5, 0, unjudged=True)
    assert filled == datasets.draw_sample(dataset, 30, 5, 0, unjudged=True)
    assert set(plain.sample) < set(filled.sample) and filled.timed == filled.sample, "no judged query warms up"
    assert (len(filled.sample), len(filled.warmup)) == (30, 5)
    # Written down once: another choice would measure stored jobs again.
    drawn = [int(query.query_id[1:]) for query in filled.sample][10:]
    assert drawn == [12, 14, 17, 18, 19, 21, 23, 26, 29, 31, 35, 41, 44, 45, 46, 48, 51, 54, 55, 58]
    assert filled.warmup == datasets.draw_sample(dataset, 1000, 5, 0).warmup
    assert filled.sample != datasets.draw_sample(dataset, 30, 5, 1, unjudged=True).sample


def test_sample_that_judged_queries_fill_stays_the_same(tiny: Path) -> None:
    ask(tiny, {f"q{number:02}": f"text of {number}" for number in range(60)}, judged=30)
    dataset = load(tiny)
    for size in (10, 30):
        asked = datasets.draw_sample(dataset, size, 20, 0, unjudged=True)
        assert asked == datasets.draw_sample(dataset, size, 20, 0)
    ask(tiny, {f"q{number:02}": f"text of {number}" for number in range(60)})
    dataset = load(tiny)
    assert datasets.draw_sample(dataset, 1000, 20, 0, unjudged=True) == datasets.draw_sample(dataset, 1000, 20, 0)


@pytest.mark.parametrize(("judged", "warm", "timed"), [(10, 12, 48), (55, 11, 49)])
def test_fifth_of_all_queries_warms_up_where_unjudged_ones_are_timed(
    tiny: Path, judged: int, warm: int, timed: int
) -> None:
    ask(tiny, {f"q{number:02}": f"text of {number}" for number in range(60)}, judged=judged)
    drawn = datasets.draw_sample(load(tiny), 1000, 100, 0, unjudged=True)
    assert (len(drawn.warmup), len(drawn.timed)) == (warm, timed)
    assert len(drawn.held_out) == max(0, judged - timed)


def test_text_that_warms_up_is_not_timed(tiny: Path) -> None:
    log = {f"l{number:02}": f"text of {number % 4}" for number in range(40)}
    ask(tiny, {f"q{number}": f"judged text {number}" for number in range(5)} | log, judged=5)
    drawn = datasets.draw_sample(load(tiny), 1000, 1, 0, unjudged=True)
    (warm,) = drawn.warmup
    assert len(drawn.sample) == 5 + 30, "three of the log's four texts, each as often as the log has it"
    assert warm.text not in {query.text for query in drawn.sample}


def test_a_dataset_without_judgements_is_refused(tiny: Path) -> None:
    (tiny / "qrels.trec").write_text("")
    with pytest.raises(HarnessError, match="dataset tiny: no query has a judgement"):
        datasets.draw_sample(load(tiny), 10, 1, 0)


@pytest.mark.slow
def test_sample_equals_the_stored_one(tmp_path: Path) -> None:
    dataset = load(datasets.find("scifact", tmp_path), tmp_path)
    assert dataset.corpus.sha256.startswith("3a8e1a2227a3") and dataset.qrels_sha256.startswith("8b7315286f8d")
    drawn = datasets.draw_sample(dataset, 1000, 20, 2023)
    assert drawn.sample_sha256.startswith("290c91e9c465") and drawn.warmup_sha256.startswith("f71874fcade0")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["corpus.jsonl", "queries.jsonl"])
def test_a_line_that_compression_hides_is_bounded(tiny: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.source, "MAX_TEXT_BYTES", 1 << 20)
    (tiny / name).unlink()
    (tiny / f"{name}.gz").write_bytes(gzip.compress(b"x" * (64 << 20)))
    assert load_error(tiny) == f"{tiny / name}.gz: line 1 has more than 1 MiB; shorten it"


def test_damaged_answers_of_a_copy_are_named(tmp_path: Path) -> None:
    path = tmp_path / "answers.json"
    wrong = {b"[" * 100_000: "more than 64 levels deep", b"{}": "key 'answers' is missing", b"\xff": "is not UTF-8"}
    for content, why in wrong.items():
        path.write_bytes(content)
        with pytest.raises(FileError, match=why):
            native._read_answers(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(FileError, match="is a pipe, no regular file"):
        native._read_answers(path)


@pytest.mark.parametrize("name", ["corpus.jsonl", "queries.jsonl", "judgements.trec"])
def test_a_pipe_in_place_of_a_file_of_a_copy_is_no_file(tiny: Path, name: str) -> None:
    (tiny / "qrels.trec").rename(tiny / "judgements.trec")
    assert load(tiny).corpus.size == 10
    (tiny / name).unlink()
    os.mkfifo(tiny / name)
    with pytest.raises(FileError, match=r"lacks .*; add corpus, queries and qrels"):
        load(tiny)


def test_ids_may_be_numbers_and_compression_may_have_no_name_of_its_own(tiny: Path) -> None:
    expected = load(tiny)
    for name, key in (("corpus.jsonl", "d"), ("queries.jsonl", "q")):
        text = (tiny / name).read_text().replace(f'"{key}1"', "17")
        (tiny / name).write_bytes(gzip.compress(text.encode()) if key == "d" else zstd(text.encode()))
    (tiny / "qrels.trec").rename(tiny / "qrels.trec.gz")
    text = (tiny / "qrels.trec.gz").read_text().replace("d1 ", "17 ").replace("q1 ", "17 ")
    (tiny / "qrels.trec.gz").write_text(text)
    dataset = load(tiny)
    assert [query.text for query in dataset.queries] == [query.text for query in expected.queries]
    assert "17" in {query.query_id for query in dataset.queries} and dataset.corpus.size == 10


def test_a_query_that_a_run_would_comment_out_is_refused(tiny: Path) -> None:
    path = tiny / "queries.jsonl"
    path.write_text(path.read_text() + '{"_id": "#", "text": "number"}\n')
    assert load_error(tiny).endswith("id '#' begins a comment in TREC files, which results are; rename it")
    path.write_text(path.read_text().replace('"#"', '"#1"'))
    assert load(tiny).queries[-1].query_id == "#1"


def test_a_window_beyond_what_is_unpacked_is_named(tiny: Path) -> None:
    """A frame of zstd whose header asks for a window of 2 GiB, as ``--long=31`` writes it."""
    (tiny / "corpus.jsonl").unlink()
    (tiny / "corpus.jsonl.zst").write_bytes(b"\x28\xb5\x2f\xfd\x00\xa8\x01\x00\x00")
    assert "cannot be read after line 0: its zstd window is over 128 MiB (--long=28 or more)" in load_error(tiny)
