"""Labels by the F1 of spans and answers, and passages of short paragraphs."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import datasets
from harness.datasets import span_labels
from harness.datasets.dureader_questions import LabelRule, label_questions
from harness.datasets.span_labels import best_f1, is_positive, join_paragraphs, join_texts, split
from harness.errors import FileError, UsageError
from tests.support.command_line import assert_refused, call

tokens = st.lists(st.sampled_from("abcd"), max_size=14)


def slow_f1(text: Sequence[str], answer: Sequence[str]) -> float:
    """The definition: every span, as bags."""
    spans = [text[a:b] for a, b in itertools.combinations(range(len(text) + 1), 2)]
    shared = [(len(span), (Counter(span) & Counter(answer)).total()) for span in spans]
    return max((2 * common / (size + len(answer)) for size, common in shared), default=0.0)


@pytest.mark.slow
@given(tokens, tokens.filter(bool), st.sampled_from([0.0, 0.3, 0.5, 0.8]), st.sampled_from([4, 1 << 20]))
def test_best_f1_is_that_of_all_spans(text: list[str], answer: list[str], above: float, cells: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(span_labels, "_CELLS", cells)
        expected = slow_f1(text, answer)
        assert best_f1(text, answer, above) == (pytest.approx(expected) if expected > above else 0.0)


def test_a_paragraph_is_positive_above_the_threshold_alone() -> None:
    answer = [split("种子,撒在土上")]  # six characters
    assert split("ABC 12, 种") == ["abc", "12", "种"]
    # Two of six: 2*2/(2+6) is the threshold, which is not above it; three are.
    assert not is_positive("种子", answer)
    assert is_positive("他把种子撒了", answer) and best_f1(split("种子撒"), answer[0]) == pytest.approx(6 / 9)
    assert is_positive("种子", answer, threshold=0.49)
    assert not is_positive("种子撒在土上", []) and not is_positive("", answer)


@pytest.mark.parametrize(
    ("sizes", "passages"),
    [
        ([], []),
        ([100, 155], [[0, 1]]),  # a page of 255 is one passage
        ([100, 156], [[0, 1]]),  # 256 does not exceed 256, and nothing follows
        ([100, 156, 10, 300], [[0, 1, 2], [3]]),
        ([256, 10], [[0], [1]]),  # not less than 256: joined with nothing
        ([300, 100, 157, 20, 10], [[0], [1, 2], [3, 4]]),
        ([10, 400, 400], [[0, 1], [2]]),
    ],
)
def test_short_paragraphs_are_joined_until_they_exceed_256(sizes: list[int], passages: list[list[int]]) -> None:
    assert [list(part) for part in join_paragraphs(["字" * size for size in sizes])] == passages


@pytest.mark.slow
@given(st.lists(st.integers(1, 40)), st.integers(1, 60))
def test_each_paragraph_is_in_one_passage(sizes: list[int], characters: int) -> None:
    parts = join_paragraphs(["x" * size for size in sizes], characters)
    assert [place for part in parts for place in part] == list(range(len(sizes)))
    assert all(sum(sizes[place] for place in part) >= characters for part in parts[:-1])
    assert all(sum(sizes[place] for place in part[:-1]) <= characters for part in parts)


def test_joined_latin_words_keep_their_border() -> None:
    assert join_texts(["花。", "第二段", "use Python", "3 now", "好"]) == "花。第二段use Python 3 now好"


ANSWER = "先播种,再浇水"


def question(number: int, *pages: list[str], answers: list[str] | None = None) -> str:
    documents = [{"title": f"标题{place}", "paragraphs": page} for place, page in enumerate(pages)]
    record: dict[str, object] = {"question_id": number, "question": f"问题{number}", "documents": documents}
    return json.dumps(record | ({} if answers is None else {"answers": answers}), ensure_ascii=False) + "\n"


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    path = tmp_path / "search.dev.json"
    long = "无关" * 128
    path.write_text(
        question(1, ["开头", "应该先播种,然后再浇水。", long], ["别的页"], answers=[ANSWER])
        + question(2, ["别的页"], ["先播种再浇水", long], answers=["另外一个", ANSWER])
        + question(3, ["没有答案"]),
        encoding="utf-8",
    )
    return path


def test_questions_become_a_collection_with_labels(raw: Path, tmp_path: Path) -> None:
    made = label_questions([raw], tmp_path / "made")
    dataset = datasets.load(tmp_path / "made", tmp_path / "cache")
    assert dataset.qrels.decode().splitlines() == ["1 0 1-0-0 1", "2 0 2-1-0 1"]
    documents = {each["_id"]: (each["title"], each["text"]) for each in dataset.corpus}
    assert list(documents) == ["1-0-0", "1-1-0", "2-1-0", "3-0-0"], "an equal passage is one document"
    assert documents["1-1-0"] == ("", "别的页") and documents["1-0-0"][1].startswith("开头应该先播种")
    assert [query.text for query in dataset.queries] == ["问题1", "问题2", "问题3"] and dataset.language == "zh"
    facts = json.loads((tmp_path / "made" / "labels.json").read_text())
    assert facts["rule"] == {"threshold": 0.5, "characters": 256, "titles": False}
    assert (facts["passages"], facts["repeated_passages"], facts["queries_without_answer"]) == (4, 1, 1)
    assert made.facts()["relevant_per_query"] == 1.0
    assert datasets.licence(tmp_path / "made").licence


def test_titles_are_kept_on_request_alone(raw: Path, tmp_path: Path) -> None:
    label_questions([raw], tmp_path / "made", LabelRule(titles=True))
    dataset = datasets.load(tmp_path / "made", tmp_path / "cache")
    titles = {each["_id"]: each["title"] for each in dataset.corpus}
    assert titles["1-0-0"] == "标题0" and {"1-1-0", "2-0-0"} <= titles.keys(), "titles differ, so both stay"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"question": "x", "documents": []}\n', "line 1: key 'question_id' is missing"),
        ('{"question_id": 1, "documents": []}\n', "line 1: key 'question' is missing"),
        ('{"question_id": 1, "question": "x", "documents": [1]}\n', "key 'documents' is not a list of objects"),
        (question(1, ["a"], answers=["b"]) * 2, "line 2: question '1' comes twice"),
        (question(1, ["a"]), "no answer makes a passage relevant"),
    ],
)
def test_wrong_questions_are_refused_and_leave_nothing(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "q.json").write_text(content, encoding="utf-8")
    with pytest.raises((FileError, UsageError), match=message):
        label_questions([tmp_path / "q.json"], tmp_path / "made")
    assert [path.name for path in tmp_path.iterdir()] == ["q.json"]


def test_label_command_prints_what_the_paper_prints(raw: Path, tmp_path: Path) -> None:
    done = call("label", str(raw), "--out", str(tmp_path / "made"))
    assert done.exit_code == 0, done.output
    assert "4 passages (median 4, mean 134.8 characters), 3 questions" in done.stdout
    assert "2 questions with relevant passages, on average 1\n" in done.stdout
    assert "1 question without answers cannot be labelled" in done.stderr
    assert_refused(call("label", str(raw), "--out", str(tmp_path / "made")), "exists; remove it")
    assert_refused(call("label", str(raw), str(raw), "--out", str(tmp_path / "more")), "two files have one name")
