"""A scorer that counts shared words, over a generated collection whose relevant passages start late."""

from __future__ import annotations

import json
import math
import random
import shutil
from pathlib import Path
from typing import Any

import docker
import pytest

from harness import datasets
from harness.config import data_root
from harness.datasets import generate
from harness.datasets.generate import wordpieces
from harness.datasets.passage_positions import read_positions
from harness.launch.images import builder, catalog
from tests.images.conftest import CACHE, GIVEN, IMPORTS
from tests.images.inside import Warmth

pytestmark = [pytest.mark.docker, pytest.mark.slow]

FIRST = 24
# Passages of five tokens (four words and a full stop) fit into windows of 9 by 5 whole.
GEOMETRY = {"min_tokens": FIRST, "max_tokens": 48, "passage_tokens": (5, 5)}
HEADS = [("first", FIRST, FIRST), ("max", 9, 5), ("sum", 9, 5), ("parade-max", 9, 5), ("long", 48, 48)]

PROBE = """
from checkpoints import rerank, rerank_heads
from safetensors.torch import load_file, save_file
lines = Path("/job/corpus.jsonl").read_text().splitlines()
corpus, asked = Corpus(Path("/job/corpus.jsonl"), len(lines)), json.loads(Path("/job/asked.json").read_text())
texts = [json.loads(line)["text"] for line in lines]
assets = Path("/index/assets")
sizes = dict(texts=texts, words=4000, hidden=32, positions=64, plant=True)
rerank.make(assets / "linear", "linear", heads=1, **sizes)
rerank_heads.make(assets / "parade", "parade-max", **sizes)

def engine(name, window, stride):
    params = {"model": "parade" if name.startswith("parade") else "linear", "head": "linear", "document_tokens": 48,
              "query_tokens": 8, "aggregation": name, "window": window, "stride": stride}
    ready = adapter.ENGINE(params, Envelope("test", 1, 1 << 30), assets)
    made = Path("/index") / params["model"]
    if not made.exists():
        made.mkdir()
        ready.build(corpus, made, lambda _: None)
    ready.load(made)
    return ready

# A window without a word of the query counts nothing, as SumP adds all windows.
weights = assets / "linear" / "model.safetensors"
tensors = load_file(weights)
tensors["cls.bias"] -= engine("first", 24, 24).score("?", asked[0][2][:1])[0]
save_file(tensors, weights, metadata={"format": "pt"})
for name, window, stride in HEADS:
    ready, total = engine(name, window, stride), 0.0
    for query, relevant, docs in asked:
        scores = dict(zip(docs, ready.score(query, docs)))
        # Equal scores keep the first stage's order, as in two stages.
        total += 1 / (1 + sorted(docs, key=lambda doc: -scores[doc]).index(relevant))
    say([name, total / len(asked)])
"""


def write_source(folder: Path, queries: int) -> Path:
    """Passages of four words; a query has the words of its own passage in another order."""
    folder.mkdir()
    draw = random.Random(3)
    words = [word for word in wordpieces.vocabulary() if word.isascii() and word.isalpha() and 4 <= len(word) <= 6]
    known = draw.sample(words, 2000)
    passages = [draw.sample(known, 4) for _ in range(queries + 2000)]
    with (folder / "corpus.jsonl").open("w") as corpus:
        for number, passage in enumerate(passages):
            print(json.dumps({"_id": f"p{number}", "title": "", "text": " ".join(passage) + " ."}), file=corpus)
    with (folder / "queries.jsonl").open("w") as asked, (folder / "qrels.trec").open("w") as qrels:
        for number, passage in enumerate(passages[:queries]):
            print(json.dumps({"_id": f"q{number}", "text": " ".join(sorted(passage))}), file=asked)
            print(f"q{number} 0 p{number} 1", file=qrels)
    return folder


def write_job(job: Path, folder: Path, cache: Path) -> None:
    """Write the collection's documents, and of each query: text, relevant document, candidates in random order."""
    dataset = datasets.load(folder, cache)
    shown = [{"_id": each["_id"], "title": "", "text": each["text"]} for each in dataset.corpus]
    (job / "corpus.jsonl").write_text("".join(json.dumps(each) + "\n" for each in shown))
    relevant = {each.query: each.doc for each in read_positions(folder)}
    assert all(each.start_token >= FIRST for each in read_positions(folder))
    candidates = _candidates(folder)
    asked = [[each.text, relevant[each.query_id], candidates[each.query_id]] for each in dataset.queries]
    (job / "asked.json").write_text(json.dumps(asked))


def _candidates(folder: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in (folder / generate.CANDIDATES).read_text().splitlines():
        query, _, doc, *_ = line.split()
        found.setdefault(query, []).append(doc)
    return found


def highest_by_chance(queries: int, candidates: int) -> float:
    """Return the mean reciprocal rank in random order plus three standard errors; 0.069 for 400 by 100."""
    ranks = range(1, candidates + 1)
    mean = sum(1 / rank for rank in ranks) / candidates
    variance = sum(1 / rank**2 for rank in ranks) / candidates - mean**2
    return mean + 3 * math.sqrt(variance / queries)


@pytest.mark.parametrize(("queries", "candidates"), [(60, 60), pytest.param(400, 100, marks=pytest.mark.soak)])
def test_first_window_ranks_far_passages_by_chance_and_others_find_them(
    engine: docker.DockerClient, warmth: Warmth, tmp_path: Path, queries: int, candidates: int
) -> None:
    image = builder.ImageBuilder(engine, CACHE).ensure_engine(catalog.system("parade-max"))
    source, cache = write_source(tmp_path / "source", queries), tmp_path / "cache"
    given: dict[str, Any] = {**GEOMETRY, "queries": queries, "candidates": candidates}
    generate.generate("far-relevant", source, tmp_path / "far", cache, seed=1, given=given)
    job = tmp_path / "job"
    (job / "checkpoints").mkdir(parents=True)
    for name in ("__init__", "dense", "planted", "rerank", "rerank_heads"):
        shutil.copy(data_root() / "checkpoints" / f"{name}.py", job / "checkpoints")
    (job / "params.json").write_text("{}")
    write_job(job, tmp_path / "far", cache)
    (job / "probe.py").write_text(f"{GIVEN}HEADS = {HEADS!r}\n{PROBE}")
    (_, first), *others = warmth.of(image.digest, IMPORTS["rerank"]).ask(job)
    assert first <= highest_by_chance(queries, candidates)
    assert [name for name, _ in others] == ["max", "sum", "parade-max", "long"]
    for name, found in others:
        assert found >= 0.99, name


def test_training_documents_open_with_their_passage_until_they_are_shuffled(
    engine: docker.DockerClient, warmth: Warmth, tmp_path: Path
) -> None:
    image = builder.ImageBuilder(engine, CACHE).ensure_engine(catalog.system("parade-max"))
    job = tmp_path / "job"
    shutil.copytree(data_root() / "checkpoints", job / "checkpoints", ignore=shutil.ignore_patterns("__pycache__"))
    (job / "params.json").write_text("{}")
    (job / "probe.py").write_text(
        GIVEN
        + """
from checkpoints.training import biased
sentences = [list(range(40 * n, 40 * n + 20)) for n in range(400)]
for shuffled in (False, True):
    drawer = biased.BiasedDrawer(sentences, 3, shuffled=shuffled)
    drawn = [drawer.pairs() for _ in range(300)]
    first = sum(set(query[:1]) <= set(right[:13]) for (query, right), *_ in drawn)
    say([first, all(len(text) == 231 for pairs in drawn for _, text in pairs),
         sum(query[0] in wrong[77:] for pairs in drawn for query, wrong in pairs[1:])])
"""
    )
    original, shuffled = warmth.of(image.digest, IMPORTS["rerank"]).ask(job)
    assert original[0] == 300 and 60 <= shuffled[0] <= 200, "one segment of two to six comes first"
    assert original[1] and shuffled[1]
    # Seven wrong documents in ten have a part of the sentence, none of it within the first third.
    assert 900 * 0.46 <= original[2] <= 900 * 0.66
