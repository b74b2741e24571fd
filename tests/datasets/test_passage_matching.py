"""Finding passages in documents: exactly where the generator put them, and near there in changed text."""

from __future__ import annotations

import gzip
import json
import random
from itertools import accumulate
from pathlib import Path

import pytest

from harness.analysis.positions import first_passages, histogram, share_before
from harness.config import data_root
from harness.datasets.generate.wordpieces import count_tokens
from harness.datasets.passage_matching import JudgedPassage, find_words, match_passages, read_chunks, read_passages
from harness.datasets.passage_positions import POSITIONS, read_positions
from harness.errors import FileError
from tests.support.command_line import call


def paragraphs() -> list[str]:
    with gzip.open(data_root() / "datasets" / "xquad-en" / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line)["text"] for line in lines]


def changed(text: str, share: float, rng: random.Random) -> str:
    """Replace, double or drop a share of the words."""
    words: list[str] = []
    for word in text.split():
        kind = rng.choice((["changed"], [word, "added"], [])) if rng.random() < share else [word]
        words += kind
    return " ".join(words)


@pytest.mark.slow
def test_generated_positions_are_found_exactly(tmp_path: Path) -> None:
    far = tmp_path / "far"
    given = ("--from", "xquad-en", "--passages", "sentences", "--out", str(far), "--queries", "120")
    done = call("generate", "far-relevant", *given)
    assert done.exit_code == 0, done.output
    stored = list(read_positions(far / POSITIONS))
    (corpus,) = far.glob("corpus.jsonl*")
    opened = gzip.open if corpus.suffix == ".gz" else open
    with opened(corpus, "rt", encoding="utf-8") as lines:
        texts = {raw["_id"]: raw["text"] for raw in map(json.loads, lines)}
    passages = [JudgedPassage(each.query, texts[each.doc][each.start_char : each.end_char]) for each in stored]
    found = match_passages(texts.items(), passages, [(each.query, each.doc) for each in stored])
    assert found.pairs == len(stored) > 100
    by_query = {each.query: each for each in found.records}
    assert [(by_query[each.query].start_token, by_query[each.query].end_token) for each in stored] == [
        (each.start_token, each.end_token) for each in stored
    ]
    before, after = (first_passages("far", "", records) for records in (stored, found.records))
    assert histogram(before.starts) == histogram(after.starts)
    assert share_before(after, 512) == share_before(before, 512)
    assert share_before(after, 512).value == 0


@pytest.mark.slow
def test_changed_passages_are_found_within_16_tokens() -> None:
    rng, texts = random.Random(7), paragraphs()
    documents, passages, starts = {}, [], {}
    for number, passage in enumerate(texts[:120]):
        others = rng.sample([each for each in texts if each != passage], 8)
        place = rng.randint(0, 8)
        parts = [changed(each, 0.05, rng) for each in (*others[:place], passage, *others[place:])]
        starts[f"q{number}"] = [0, *accumulate(count_tokens(parts))][place]
        documents[f"d{number}"] = " ".join(parts)
        passages.append(JudgedPassage(f"q{number}", passage))
    pairs = [(f"q{number}", f"d{number}") for number in range(len(passages))]
    found = match_passages(documents.items(), passages, pairs)
    near = [each for each in found.records if abs(each.start_token - starts[each.query]) <= 16]
    assert len(near) >= 0.95 * len(passages)
    # The next document has most passages nowhere: a paragraph stands in one of 30 documents by chance.
    wrong = [(f"q{number}", f"d{(number + 1) % len(passages)}") for number in range(len(passages))]
    absent = match_passages(documents.items(), passages, wrong)
    assert absent.pairs == len(passages) and len(absent.records) < 0.15 * len(passages)


def test_rule_is_that_of_the_study() -> None:
    passage = [f"w{number}" for number in range(10)]
    around = ["x"] * 7
    assert find_words([*around, *passage, *around], passage) == (7, 17)
    assert find_words([*around, *passage[2:], *around], passage) == (5, 15), "80 % in one piece"
    gaps = [word if number not in (3, 6, 8) else "y" for number, word in enumerate(passage)]
    assert find_words([*around, *gaps, *around], passage) == (7, 17), "70 % in order"
    gaps[0] = "y"
    assert find_words([*around, *gaps, *around], passage) is None, "60 %"
    assert find_words([*around, *reversed(passage), *around], passage) is None, "in another order"
    assert find_words([], passage) is None


def test_first_relevant_chunk_counts(tmp_path: Path) -> None:
    path = tmp_path / "chunks.jsonl"
    grades = [("d1", 0, 0), ("d1", 3, 1), ("d1", 2, 2), ("d2", 0, 0), ("d3", 35, 1)]
    lines = [json.dumps({"query": "q", "doc": doc, "chunk": chunk, "grade": grade}) for doc, chunk, grade in grades]
    path.write_text("\n".join([*lines, '{"query": "q", "doc": "d4", "chunk": 1, "grade": 1, "start_token": 250}']))
    found = read_chunks(path)
    assert {each.doc: each.start_token for each in found.records} == {"d1": 512, "d3": 8960, "d4": 250}
    assert found.pairs == 4


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"query": "q", "doc": "d", "chunk": 36, "grade": 1}', "key 'chunk' is 36"),
        ('{"query": "q", "doc": "d", "grade": 1}', "key 'chunk' is missing"),
        ('{"query": "q", "doc": "d", "chunk": 0, "grade": "1"}', "key 'grade' is"),
        ("[1]", "no object in curly brackets"),
    ],
)
def test_wrong_chunk_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "chunks.jsonl"
    path.write_text(f'{{"query": "q", "doc": "d", "chunk": 0, "grade": 1}}\n{line}\n')
    with pytest.raises(FileError, match="line 2") as caught:
        read_chunks(path)
    assert message in str(caught.value)


def test_wrong_passage_is_named(tmp_path: Path) -> None:
    path = tmp_path / "passages.jsonl"
    path.write_text('{"query": "q", "passage": "text"}\n')
    with pytest.raises(FileError, match=r"line 1: .*'text' is missing"):
        list(read_passages(path))
