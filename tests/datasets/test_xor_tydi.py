"""XOR-TyDi: questions with answers, and hits that are judged by their texts as its own evaluator judges them."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from harness import datasets
from harness.datasets import answers
from harness.datasets.answers import Answers
from harness.driver.records import Outcome, Query
from harness.errors import FileError, HarnessError, UsageError
from harness.launch.fake import FakeLauncher
from harness.results.reader import read_jobs
from harness.results.schema import JUDGED_HITS
from tests.conftest import Bench
from tests.datasets import examples
from tests.datasets.conftest import Example, load, load_error, replace_text

pytestmark = pytest.mark.usefixtures("model")
QUESTIONS = "xor_dev_retrieve_eng_span_v1_1.jsonl"


def holds(text: str, *spans: str) -> bool:
    judged = Answers({"q": spans}).judge(b"q Q0 d 1 1.0 x\n", lambda ids: ((each, text) for each in ids))
    assert judged in (b"q 0 d 0\n", b"q 0 d 1\n")
    return judged == b"q 0 d 1\n"


# What evals/eval_xor_retrieve.py says of a passage alone: `answer in " ".join(word_tokenize(passage))`.
@pytest.mark.parametrize(
    ("text", "answer", "hit"),
    [
        ("Rivers run to the North Sea.", "North Sea", True),
        ("Rivers run to the North Sea.", "north sea", False),
        ("Rivers run to the Northern Sea.", "North", True),
        ("Rivers run to the North  Sea.", "North Sea", True),
        ("Rivers run to the North\nSea.", "North Sea", True),
        ("Born in Washington, D.C. in 1950", "Washington, D.C.", False),
        ("Born in Washington, D.C. in 1950", "D.C.", True),
        ("It is 3,000 m high.", "3,000", True),
        ("It is 30% of it.", "30%", False),
        ("It is the river's end.", "river's", False),
        ('He called it "the sea".', '"the sea"', False),
        ("He ended. In 1950", "ended.", False),
        ("By Dr. Smith of it", "Dr. Smith", True),
        ("東京は首都です", "首都", True),
        ("", "x", False),
    ],
)
def test_answer_search_matches_the_evaluator(text: str, answer: str, hit: bool) -> None:
    assert holds(text, answer) is hit


def test_one_of_several_answers_is_enough() -> None:
    assert holds("the North Sea", "South Sea", "North Sea")


@pytest.mark.slow
def test_prefilter_skips_no_text_with_an_answer() -> None:
    chance = random.Random(7)
    parts = [
        *("cannot", "U.S.", "(a)", "1,000", "--", "...", '"x"', "it's", "``", "東京。", "he\u00a0said", "d'ye", "$5"),
        *("a.b", "“q”"),
    ]
    found = 0
    for _ in range(300):
        text = chance.choice([" ", "  ", "\n"]).join(chance.choices(parts, k=8)) + chance.choice(["", ".", "?", '"'])
        tokens = answers.tokenise(text)
        for _ in range(20):
            first, last = sorted(chance.sample(range(len(tokens) + 1), 2))
            # Every piece of the tokens is an answer that the evaluator finds.
            assert answers.may_hold(text, tokens[first:last]), (text, tokens[first:last])
            found += 1
    assert found == 6000
    assert not answers.may_hold("theNorthSea", "South")


def test_questions_answered_yes_or_no_are_left_out(example: Example) -> None:
    dataset = load(example("XOR-TyDi"))
    assert dataset.queries == (Query("q1", "where do rivers go"), Query("q2", "is ice cold"))
    assert dataset.judged == {"q1"} and dataset.qrels == b""
    drawn = datasets.draw_sample(dataset, 10, 1, 0)
    assert [query.query_id for query in drawn.sample] == ["q1"]
    assert answers.searchable_answers(["yes", "no", "Yes", "no way"]) == ("Yes", "no way")


def test_questions_without_answers_are_not_timed(example: Example) -> None:
    """Their hits would be judged, and each would count 0."""
    dataset = load(example("XOR-TyDi"))
    dataset = replace(dataset, queries=(*dataset.queries, Query("q3", "why"), Query("q4", "who")))
    assert datasets.draw_sample(dataset, 1, 1, 0, unjudged=True) == datasets.draw_sample(dataset, 1, 1, 0)
    with pytest.raises(HarnessError, match=r"queries without answers would count 0 .*; leave out protocol.unjudged"):
        datasets.draw_sample(dataset, 2, 1, 0, unjudged=True)


def test_licence_is_known(example: Example) -> None:
    path = example("XOR-TyDi")
    assert datasets.licence(path).licence == "CC BY-SA 4.0"
    (path / "dataset.toml").write_text('licence = "CC0"\n', encoding="utf-8")
    assert datasets.licence(path).licence == "CC0"


def test_quotes_of_the_collection_are_read_as_csv(example: Example) -> None:
    dataset = load(example("XOR-TyDi"))
    assert dict(dataset.corpus.texts(["d1"])) == {"d1": 'Rivers run to the "North Sea" in the end.'}
    assert dataset.corpus.size == 2


def test_translated_questions_are_read_as_published(example: Example) -> None:
    path = example("XOR-TyDi")
    (path / "queries.tsv").unlink()
    lines = (path / QUESTIONS).read_text(encoding="utf-8").replace("川はどこへ流れますか", "where to do rivers flow")
    (path / "xor_retrieve_eng_span_dev_google_trans_q.jsonl").write_text(lines, encoding="utf-8")
    assert load(path).queries[0] == Query("q1", "where to do rivers flow")


WRONG = [
    (QUESTIONS, '"id": "q1"', '"id": null', f"{QUESTIONS}: line 1: key 'id' is missing"),
    (QUESTIONS, '["North Sea"]', '"North Sea"', f"{QUESTIONS}: line 1: key 'answers' is not a list of texts"),
    (QUESTIONS, '["North Sea"]', '["North Sea", ""]', f"{QUESTIONS}: line 1: an empty answer"),
    ("queries.tsv", "q2\tis ice cold\n", "", f"{QUESTIONS}: line 2: question 'q2' has no translation in queries.tsv"),
    ("queries.tsv", "q2", "q1", "queries.tsv: line 2: question 'q1' has two translations"),
    ("psgs_w100.tsv", "d2\t", "d 2\t", "psgs_w100.tsv: line 3: id 'd 2' must be"),
    ("psgs_w100.tsv", "d2\t", "d1\t", "psgs_w100.tsv: line 3: id 'd1' comes twice"),
    ("psgs_w100.tsv", "\tGlaciers\n", "\n", "psgs_w100.tsv: line 3: 2 fields between tabs, expected 'id text title'"),
    ("psgs_w100.tsv", 'end."', "end.", "psgs_w100.tsv: line 3: "),
]


@pytest.mark.parametrize(("file", "old", "new", "what"), WRONG)
def test_a_wrong_line_is_named(example: Example, file: str, old: str, new: str, what: str) -> None:
    path = example("XOR-TyDi")
    replace_text(path / file, old, new)
    assert load_error(path).startswith(f"{path}/{what}")


def test_quote_that_spans_lines_is_named(example: Example) -> None:
    path = example("XOR-TyDi")
    replace_text(path / "psgs_w100.tsv", "d2\tGlaciers are slow rivers of ice.", 'd2\t"Glaciers')
    with (path / "psgs_w100.tsv").open("a") as file:
        file.write('d3\tIce." it goes\tIce\n')
    what = "line 4: a quote before this line swallows whole lines; close it or double it"
    assert load_error(path) == f"{path}/psgs_w100.tsv: {what}"


def test_questions_without_translations_are_left_out(example: Example) -> None:
    path = example("XOR-TyDi")
    (path / "queries.tsv").unlink()
    assert load_error(path).startswith(f"{path}: lacks queries.tsv or *_q.jsonl (XOR-TyDi)")


def test_half_a_character_in_an_answer_becomes_a_question_mark(example: Example) -> None:
    folder = example("XOR-TyDi")
    path = folder / QUESTIONS
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    lines[0]["answers"] = ["caf\ud800"]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    judged = load(folder).answers
    assert judged and ("caf?",) in judged.by_query.values() and b"caf?" in judged.content


def test_judgements_hash_depends_on_the_answers(example: Example) -> None:
    path = example("XOR-TyDi")
    before = load(path)
    replace_text(path / QUESTIONS, "North Sea", "South Sea")
    after = load(path)
    assert before.corpus == after.corpus and before.qrels_sha256 != after.qrels_sha256


# One job from end to end.


def test_job_without_a_run_has_no_judgements(bench: Bench) -> None:
    examples.write("XOR-TyDi", bench.folder / "xor")
    launcher = FakeLauncher(lambda job: Outcome.CRASH if job.spec.kind == "search" else Outcome.OK)
    bench.run(launcher, bench.suite(datasets=["./xor"]))
    (job,) = read_jobs(bench.results)
    assert job.result.outcome is Outcome.CRASH and not (job.folder / JUDGED_HITS).exists()


def test_unknown_document_holds_no_answer() -> None:
    judged = Answers({"q": ("x",)}).judge(b"q Q0 nowhere 1 1.0 x\n", lambda _: iter(()))
    assert judged == b"q 0 nowhere 0\n"


@pytest.mark.usefixtures("no_model")
class TestWithoutTheModel:
    def test_missing_tokenizer_model_is_reported_before_any_work(self, example: Example, no_model: Path) -> None:
        path = example("XOR-TyDi")
        (no_model / "tokenizers" / "punkt_tab" / "english" / "abbrev_types.txt").unlink()
        with pytest.raises(UsageError, match=r"run `python -m nltk\.downloader punkt_tab`") as caught:
            load(path)
        assert not isinstance(caught.value, FileError) and "\n" not in str(caught.value)
