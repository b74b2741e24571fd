"""What the tests of the engine of learned sparse retrieval share: small checkpoints, a corpus, lines of Python."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkpoints.sparse import WORDS
from harness import catalog
from tests.images import tiny

CHECKPOINTS = [
    {"folder": "bt-splade-l-query", "kind": "splade", "layers": 1},
    {"folder": "bt-splade-l-document", "kind": "splade-distilbert", "seed": 8},
    {"folder": "splade-v2-distil", "kind": "splade-distilbert", "seed": 9},
    {"folder": "unicoil", "kind": "unicoil"},
    {"folder": "deepct", "kind": "deepct", "safetensors": True},
    {"folder": "doct5query", "kind": "doct5query"},
]
SMALL = {"expansions": 3, "query_length": 8, "expansion_batch": 2, "shard_documents": 8}

_ASKED = """
documents = {each.doc_id: f"{each.title} {each.text}" if each.title else each.text for each in corpus}
queries = ["the river of the north", "old glacier ice", "coffee and molten rock", "zebra", "", "\\U0001f600 \\u68ee"]
"""

BUILT = (
    """
engine().build(corpus, index, lambda _: None)
system = engine()
system.load(index)
"""
    + _ASKED
)

# The index is made by a process of its own: this one has loaded what a search needs, and no more.
BUILT_APART = (
    """
import os, sys, traceback
child = os.fork()
if not child:
    try:
        engine().build(corpus, index, lambda _: None)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
assert os.waitpid(child, 0)[1] == 0, "the build failed"
system = engine()
system.load(index)
"""
    + _ASKED
)

# SPLADE by transformers alone: weights of the vocabulary, rounded.
PLAIN = """
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer
def plain(name):
    folder = f"/job/models/{name}"
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForMaskedLM.from_pretrained(folder).eval()
    terms = {number: token for token, number in tokenizer.get_vocab().items()}
    def encode(text):
        given = tokenizer(text, truncation=True, max_length=256, return_tensors="pt")
        with torch.inference_mode():
            weights = torch.log1p(torch.relu(model(**given).logits)).amax(1)[0]
        rounded = {terms[number]: round(100 * weight) for number, weight in enumerate(weights.tolist())}
        return {term: weight for term, weight in rounded.items() if weight}
    return encode
"""


Ask = Callable[..., list[Any]]


def asker(probe: Callable[..., list[Any]], models: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Runs lines in the image of a system like a shipped one, over a corpus of 24 documents.

    Args:
        models: the small checkpoints.
        folder: the test's own; the probe sees ``folder/job``.
    """

    def run(like: str, lines: str, *, cold: bool = False, **params: Any) -> list[Any]:
        has = catalog.systems(catalog.images_dir())[like].params
        own = folder / "images"
        changed = {**{key: value for key, value in SMALL.items() if key in has}, **params}
        tiny.own_system(f"{like}-tiny", like, own, models, **changed)
        monkeypatch.setenv("HARNESS_IMAGES", str(own))
        job = folder / "job"
        if not job.exists():
            job.mkdir()
            shutil.copytree(models, job / "models")
            (job / "more.jsonl").write_text("".join(json.dumps(each) + "\n" for each in documents()))
        return probe(f"{like}-tiny", 'corpus = Corpus(Path("/job/more.jsonl"), 24)\n' + lines, models=models, cold=cold)

    return run


def documents() -> list[dict[str, str]]:
    """Some of known words, two that are equal, one long, one empty, ids that are odd."""
    draw = random.Random(5)
    made = [
        {"_id": f"d{number}", "title": "", "text": " ".join(draw.choices(WORDS, k=draw.randint(3, 40)))}
        for number in range(19)
    ]
    return [
        *made,
        {"_id": "two words \u00e9", "title": "Glaciers", "text": "Rivers of ice that move slowly down mountains."},
        {"_id": "twin b", "title": "", "text": "the old river of the north"},
        {"_id": "twin a", "title": "", "text": "the old river of the north"},
        {"_id": "long", "title": "", "text": "market " * 100_000 + "zebra"},
        {"_id": "empty", "title": "", "text": ""},
    ]
