"""Helpers of the learned sparse retrieval tests: small checkpoints, a corpus, lines of Python."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from checkpoints.sparse import WORDS
from harness.launch.images import catalog
from harness.launch.images.systems import System
from tests.images.inside import Warm

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

# What a process that only searches imports, and answers.
SEARCHED_APART = """
import subprocess
sys.stdout.flush()
subprocess.run([sys.executable, "-c", f'''
import json, sys
from pathlib import Path
import adapter
from harness.driver.records import Envelope
system = adapter.ENGINE({params!r}, Envelope("test", 1, 1 << 30), Path({str(assets)!r}))
system.load(Path("/index/made"))
before = sorted(system.stages_s())
hits = [hit.doc_id for hit in system.search("river north", 3)]
loaded = sorted({{"torch", "transformers", "tokenizers", "encoder"}} & set(sys.modules))
print("said", json.dumps([loaded, before, hits, sorted(system.stages_s())]))
'''], check=True)
"""

# SPLADE by transformers alone: weights of the vocabulary, rounded.
PLAIN = """
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer
def plain(name, scale=100):
    folder = f"/job/models/{name}"
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForMaskedLM.from_pretrained(folder).eval()
    terms = {number: token for token, number in tokenizer.get_vocab().items()}
    def encode(text):
        given = tokenizer(text, truncation=True, max_length=256, return_tensors="pt")
        with torch.inference_mode():
            weights = torch.log1p(torch.relu(model(**given).logits)).amax(1)[0]
        rounded = {terms[number]: round(scale * weight) for number, weight in enumerate(weights.tolist())}
        return {term: weight for term, weight in rounded.items() if weight}
    return encode
"""


Ask = Callable[..., list[Any]]


# Makes the checkpoints ready as an image's build does, once for all tests that ask for the same, in a process of its
# own: this one has loaded nothing then.
_PREPARE = """
import hashlib, os, shutil
assets = Path("/kept") / hashlib.sha256(Path("/job/system.json").read_bytes()).hexdigest()
if not assets.is_dir():
    fresh = Path("/kept/fresh")
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.copytree("/job/models", fresh)
    os.symlink("/opt/assets/anserini", fresh / "anserini")
    child = os.fork()
    if not child:
        import encoder.prepare, term_weights.prepare
        os._exit(encoder.prepare.main([str(fresh), "/job/system.json"], term_weights.prepare.make_ready))
    assert os.waitpid(child, 0)[1] == 0, "the checkpoints could not be made ready"
    fresh.rename(assets)
engine = lambda **changes: adapter.ENGINE({**params, **changes}, Envelope("test", 1, 1 << 30), assets)
corpus = Corpus(Path("/job/more.jsonl"), 24)
"""


def asker(warm: Callable[[System], Warm], prelude: str, models: Path, folder: Path) -> Ask:
    """Runs lines in an engine's image, over small checkpoints and a corpus of 24 documents.

    Args:
        warm: gives the container of a system's engine.
        models: the small checkpoints.
        folder: the test's own.
    """

    def run(like: str, lines: str, **changes: Any) -> list[Any]:
        system = catalog.system(like)
        has = system.params
        assert changes.keys() <= has.keys(), f"{like} has no parameter {changes.keys() - has.keys()}"
        params = {**has, **{key: value for key, value in SMALL.items() if key in has}, **changes}
        job = folder / "job"
        shutil.copytree(models, job / "models")
        (job / "params.json").write_text(json.dumps(params))
        read = {name: params[name] for name in system.prepare_params if name in params}
        (job / "system.json").write_text(json.dumps({"build_params": read, "search_params": {}}))
        (job / "more.jsonl").write_text("".join(json.dumps(each) + "\n" for each in documents()))
        (job / "probe.py").write_text(prelude + _PREPARE + lines)
        return warm(system).ask(job)

    return run


def documents() -> list[dict[str, str]]:
    """Return documents of known words, two equal ones, a long one, an empty one and odd ids."""
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
