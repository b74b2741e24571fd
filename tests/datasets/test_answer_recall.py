"""R@2kt and R@5kt: an answer within the first 2,000 or 5,000 tokens of the retrieved texts, as XOR-TyDi counts."""

from __future__ import annotations

import functools
import gzip
import json
import random
import shutil
from pathlib import Path

import pytest

from harness.analysis.evaluate_job import JobEvaluator
from harness.analysis.rows import build_rows
from harness.datasets import answers
from harness.datasets.answers import Answers, answer_depth
from harness.errors import FileError
from harness.evaluation import answer_recall, evaluate, measure_names
from harness.evaluation.answer_recall import MAX_TOKENS, AnswerDepth
from harness.evaluation.trec import Run
from harness.launch.process import ProcessLauncher
from harness.results.reader import StoredJob, read_jobs
from harness.results.schema import ANSWER_DEPTHS, JUDGED_HITS
from tests.conftest import Bench
from tests.datasets import examples
from tests.support.command_line import call

pytestmark = pytest.mark.usefixtures("model")


@functools.cache
def word_tokenize(passage: str) -> list[str]:
    from nltk.tokenize import word_tokenize

    return list(word_tokenize(passage))


def evaluator(passages: list[str], spans: list[str], limit: int) -> bool:
    """Do as ``evals/eval_xor_retrieve.py`` does for one question: cut, join, look."""
    tokens: list[str] = []
    for passage in passages:
        tokens += word_tokenize(passage)
        if len(tokens) >= limit:
            break
    text = " ".join(tokens[:limit])
    return any(span in text for span in spans)


def ours(passages: list[str], spans: list[str]) -> AnswerDepth:
    return answer_depth((answers.tokenise(passage) for passage in passages), spans)


WORDS = [
    *("North", "Sea", "the", "U.S.", "(a)", "1,000", "it's", '"x"', "cannot", "東京。", "--", "a.b", "$5", "seas", "")
]


@pytest.mark.slow
def test_answer_depth_matches_the_evaluator() -> None:
    chance = random.Random(11)
    found = lost = 0
    for _ in range(400):
        passages = [" ".join(chance.choices(WORDS, k=chance.randrange(6))) for _ in range(chance.randrange(1, 6))]
        whole = " ".join(answers.tokenise(passage) for passage in passages)
        spans = ["nowhere", "Sea North", "ea"]
        if whole:  # a piece of the tokens, which may begin and end anywhere in them
            first = chance.randrange(len(whole))
            spans.append(whole[first : first + chance.randrange(1, 12)])
        asked = chance.sample(spans, chance.randrange(1, len(spans) + 1))
        deep = ours(passages, asked)
        for limit in range(1, 40):
            within = deep.found is not None and deep.found <= limit
            assert within == evaluator(passages, asked, limit), (passages, asked, limit, deep)
            found, lost = found + within, lost + (not within)
    assert found > 3000 and lost > 3000


@pytest.mark.slow
def test_an_answer_may_span_two_passages_and_end_within_a_token() -> None:
    assert ours(["to the North", "Sea of it"], ["North Sea"]) == AnswerDepth(4, 4)
    assert ours(["to the Northern Sea"], ["North"]) == AnswerDepth(3, 3)
    assert ours(["to the", "North"], ["the "]) == AnswerDepth(3, 3), "the blank stands only before a next token"
    assert ours(["", "a b"], ["c"]) == AnswerDepth(None, 2)
    assert ours(["a b"], []) == AnswerDepth(None, 2)


@pytest.mark.slow
def test_only_the_tokens_of_the_deepest_measure_are_read() -> None:
    taken: list[int] = []

    def passages() -> object:
        for number in range(1000):
            taken.append(number)
            yield " ".join(["x"] * 99 + ["end" if number == 100 else "y"])

    assert answer_depth(passages(), ["end"]) == AnswerDepth(None, MAX_TOKENS)
    assert len(taken) == MAX_TOKENS // 100
    assert answer_depth(passages(), ["y"]) == AnswerDepth(100, 100)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["R@2kt", "R@5kt", "R@10kt"])
def test_name_of_an_answer_depth_parses_back(name: str) -> None:
    (measure,) = measure_names.parse([name, name])
    assert str(measure) == name and measure_names.cutoff(measure) is None
    assert not measure_names.looks_deeper(measure, 1)


def judged(depths: dict[str, AnswerDepth] | None, *names: str, hits_alone: bool = True) -> evaluate.Evaluation:
    run = Run(dict.fromkeys(depths or {"a": 0}, ("x", "y")), (), depths=depths)
    sample = ["a", "b", "c", "d"]
    return evaluate.evaluate(run, {}, sample, measure_names.parse(names), hits_alone=hits_alone)


def test_answer_recall_is_a_mean_that_counts_queries_without_hits_as_zero() -> None:
    depths = {"a": AnswerDepth(2000, 2000), "b": AnswerDepth(2001, 2001), "c": AnswerDepth(None, 6000)}
    evaluation = judged(depths, "R@2kt", "R@5kt", "Success@10")
    assert evaluation.values == {"R@2kt": 0.25, "R@5kt": 0.5, "Success@10": 0.0}
    assert evaluation.per_query["R@2kt"] == {"a": 1.0, "b": 0.0, "c": 0.0, "d": 0.0}
    assert evaluation.without_hits == ("d",) and evaluation.truncated == {}
    assert evaluation.means == {"R@2kt", "R@5kt", "Success@10"}


def test_mean_over_languages_is_the_mean_of_their_means() -> None:
    depths = {"a": AnswerDepth(9, 9, "ja"), "b": AnswerDepth(9, 9, "ja"), "c": AnswerDepth(None, 6000, "ja")}
    depths["d"] = AnswerDepth(None, 0, "fi")  # without hits
    run = Run(dict.fromkeys("abc", ("x",)), (), depths=depths)
    names = ("R@2kt", "R(mean='languages')@2kt", 'R(mean="languages")@5kt')
    evaluation = evaluate.evaluate(run, {}, list("abcd"), measure_names.parse(names), hits_alone=True)
    by_language = "R(mean='languages')@2kt"
    assert evaluation.values["R@2kt"] == 0.5
    assert evaluation.values[by_language] == evaluation.values["R(mean='languages')@5kt"] == pytest.approx(1 / 3)
    # Paired tests take the mean over queries: it must be the same.
    assert evaluation.per_query[by_language] == pytest.approx({"a": 2 / 3, "b": 2 / 3, "c": 0, "d": 0})
    assert by_language not in evaluation.means and "R@2kt" not in evaluation.truncated
    figure = evaluate.estimate(evaluation, by_language)
    assert figure.low is None and figure.reason == "no interval: it is not a mean over queries"


def test_mean_over_unknown_languages_has_a_reason() -> None:
    evaluation = judged({"a": AnswerDepth(9, 9, "ja"), "b": AnswerDepth(9, 9)}, "R(mean='languages')@2kt", "R@2kt")
    assert evaluation.values == {"R(mean='languages')@2kt": None, "R@2kt": 0.5}
    assert evaluation.reasons["R(mean='languages')@2kt"].startswith("needs each question's language")


def test_question_without_hits_keeps_its_language() -> None:
    known = Answers({"q": ("x",), "p": ("y",)}, {"q": "ja", "p": "fi"})
    depths = known.depths(b"q Q0 a 1 3.0 s\n", lambda ids: ((each, "one x") for each in ids))
    assert depths == b"q\t2\t2\tja\np\t-\t0\tfi\n"


def test_truncated_queries_are_noted_with_the_needed_hits() -> None:
    depths = {"a": AnswerDepth(None, 1999), "b": AnswerDepth(None, 300), "c": AnswerDepth(5, 5)}
    evaluation = judged(depths, "R@2kt", "R@5kt")
    assert {name: (short.queries, short.k) for name, short in evaluation.truncated.items()} == {
        "R@2kt": (("a", "b"), 14),  # two hits have 300 tokens
        "R@5kt": (("a", "b"), 34),
    }


def test_answer_recall_without_depths_has_a_reason() -> None:
    assert judged(None, "R@2kt").values == {"R@2kt": None}
    assert judged(None, "R@2kt").reasons["R@2kt"].startswith("the depth of answers was not stored")
    evaluation = evaluate.evaluate(Run({}, ()), {"a": {"x": 1}}, ["a"], measure_names.parse(["R@2kt", "RR"]))
    assert evaluation.values == {"R@2kt": None, "RR": 0.0}
    assert evaluation.reasons == {"R@2kt": "needs a dataset with answers; this one has judgements of documents"}


def test_written_depths_read_back(tmp_path: Path) -> None:
    depths = {"q 1": AnswerDepth(None, 12), "é": AnswerDepth(3, 3, "fi"), "none": AnswerDepth(None, 0)}
    path = tmp_path / ANSWER_DEPTHS
    path.write_bytes(gzip.compress(answer_recall.render_depths(depths)))
    assert answer_recall.read_depths(path) == depths
    for wrong in (b"q\t-\n", b"q\tx\t1\n", b"q\t5\t3\n", b"q\t-\t\xff\n", b"q\t-\t1\tja\tx\n"):
        path.write_bytes(gzip.compress(b"p\t1\t1\n" + wrong))
        with pytest.raises(FileError, match=rf"{ANSWER_DEPTHS}:[012]: damaged"):
            answer_recall.read_depths(path)
    path.unlink()
    with pytest.raises(FileError, match="this file does not exist"):
        answer_recall.read_depths(path)


# One job from end to end.


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the results folder that the tests share."""
    return tmp_path_factory.mktemp("depths") / "results"


@pytest.fixture
def job(bench: Bench, kept: Path) -> StoredJob:
    """A copy of the one job."""
    if not kept.exists():
        examples.write("XOR-TyDi", bench.folder / "xor")
        (bench.folder / "xor" / "psgs_w100.tsv").write_text(
            "".join(
                f"d{n}\tall about where rivers {n}{' end: the North Sea' if n == 8 else ''}\tR\n" for n in range(10)
            )
        )
        bench.run(ProcessLauncher(bench.cache), bench.suite(datasets=["./xor"], measures=["RR@10", "R@2kt"]))
        shutil.copytree(bench.results, kept)
    else:
        shutil.copytree(kept, bench.results)
    (stored,) = read_jobs(bench.results)
    return stored


@pytest.mark.slow
def test_depths_are_stored_with_the_job_and_reported(bench: Bench, job: StoredJob) -> None:
    # d9 has 5 tokens; d8 "all about where rivers 8 end : the North Sea".
    assert gzip.decompress((job.folder / ANSWER_DEPTHS).read_bytes()) == b"q1\t15\t15\tja\n"
    assert {ANSWER_DEPTHS, JUDGED_HITS} <= job.result.files.keys()
    (row,) = build_rows([job], JobEvaluator(["R@2kt", "R@5kt", "RR@10"])).table.rows
    assert {name: figure.value for name, figure in row.measures.items()} == {"R@2kt": 1.0, "R@5kt": 1.0, "RR@10": 0.5}
    asked = ["report", str(bench.results), "--cache", str(bench.cache), "--measures", "R@2kt RR@10", "--format", "csv"]
    printed = call(*asked)
    assert "R@2kt" in printed.stdout and printed.exit_code == 0


@pytest.mark.slow
def test_hits_are_judged_after_the_job_and_judgements_are_stored_with_it(bench: Bench, job: StoredJob) -> None:
    # The planted engine ranks equal scores from the last id on: d9, d8, d7.
    judged = gzip.decompress((job.folder / JUDGED_HITS).read_bytes()).decode()
    assert judged == "q1 0 d9 0\nq1 0 d8 1\nq1 0 d7 0\n"
    kept = bench.results / "test-suite" / "qrels" / f"{job.result.spec.qrels_sha256}.answers.json.gz"
    assert json.loads(gzip.decompress(kept.read_bytes()))["answers"] == {"q1": ["North Sea"]}
    known = {"RR@10": 0.5, "Success@1": 0.0, "Success@10": 1.0, "P@2": 0.5}
    (row,) = build_rows([job], JobEvaluator([*known, "nDCG@10", "R@10", "AP"])).table.rows
    values = {name: figure.value for name, figure in row.measures.items()}
    assert values == known | dict.fromkeys(("nDCG@10", "R@10", "AP"))
    assert (row.measures["nDCG@10"].reason or "").startswith("needs all relevant documents")
    assert row.judged.queries == 1 and row.judged.unjudged_share is None, "each hit is judged by its text"


@pytest.mark.slow
def test_verify_names_wrong_depths(job: StoredJob) -> None:
    from harness.results.integrity_samples import Runs

    assert list(Runs().check(job)) == []
    wrong = {b"q1\t-\t15\n": "no answer for query 'q1'", b"q7\t1\t1\n": "depths of 1 query", b"": "depths of 0 queries"}
    for content, what in wrong.items():
        (job.folder / ANSWER_DEPTHS).write_bytes(gzip.compress(content))
        first = next(iter(Runs().check(job)))
        assert (first.place, first.stored) == (ANSWER_DEPTHS, what)


def test_unknown_documents_have_no_tokens() -> None:
    judge = Answers({"q": ("x",)})
    texts = {"a": "one x", "b": "two"}
    depths = judge.depths(
        b"q Q0 b 1 3.0 s\nq Q0 nowhere 2 2.0 s\nq Q0 a 3 1.0 s\n",
        lambda ids: ((each, texts[each]) for each in ids if each in texts),
    )
    assert depths == b"q\t3\t3\n"
