"""Fixtures that run scripts in real system images under a job's limits."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from harness.config import data_root
from harness.launch.images import assets, builder, catalog
from harness.launch.images.systems import System
from tests.images import inside
from tests.images.colbert import Inside, make_models
from tests.images.inside import Warmth

# The same place as the command line's: what it has fetched already is not fetched again.
CACHE = Path(os.environ.get("HARNESS_CACHE") or Path.home() / ".cache" / "ir-harness")

# What every script has (`refused` returns a refusal's message); then an engine over the image's assets, and a corpus.
GIVEN = """
import json, sys
from pathlib import Path
import adapter
from harness.driver.adapter import Corpus
from harness.driver.records import Envelope
params = json.loads(Path("/job/params.json").read_text())
index = Path("/index/made")
index.mkdir()
say = lambda value: print("said", json.dumps(value))
def refused(call):
    try:
        call()
    except ValueError as error:
        return str(error)
    return ""
"""
PRELUDE = (
    GIVEN
    + """
engine = lambda **changes: adapter.ENGINE({**params, **changes}, Envelope("test", 1, 1 << 30), Path("/opt/assets"))
corpus = Corpus(Path("/job/corpus.jsonl"), 4)
"""
)

DOCUMENTS = [
    {"_id": "glacier", "title": "Glaciers", "text": "Rivers of ice that move slowly down mountains."},
    {"_id": "volcano", "title": "", "text": "Mountains that throw out molten rock and ash."},
    {
        "_id": "caf\u00e9 \U0001f600",
        "title": "Caf\u00e9s",
        "text": "Houses where people drink coffee \U0001f600 and talk.",
    },
    {"_id": "twin", "title": "", "text": "Mountains that throw out molten rock and ash."},
]

# A clock that only the named calls move, so that a test can tell which stage counts which call.
MADE_CLOCK = """
import time
now = [0]
time.perf_counter = lambda: now[0]
def takes(owner, name, seconds):
    plain = getattr(owner, name)
    def call(*arguments, **options):
        now[0] += seconds
        return plain(*arguments, **options)
    setattr(owner, name, call)
"""

Probe = Callable[..., list[Any]]


@pytest.fixture(scope="session", autouse=True)
def images_for_gpus() -> Iterator[None]:
    """With HARNESS_TEST_CUDA set, tests run in the images for GPUs, on the CPU; those of sizes then fail."""
    with pytest.MonkeyPatch.context() as patched:
        for name in ("find", "ensure", "ensure_engine") if os.environ.get("HARNESS_TEST_CUDA") else ():
            patched.setattr(builder.ImageBuilder, name, _for_gpus(getattr(builder.ImageBuilder, name)))
        yield


def _for_gpus(plain: Callable[..., Any]) -> Callable[..., Any]:
    return lambda images, system: plain(images, system.for_job("build", gpus=1))


# transformers imports a model's module, and with it a thousand of PyTorch's, at its first use: not in each fork again.
_MODELS = """
import torch._dynamo
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer, BertModel, DistilBertModel
"""
# What scripts in an engine's image import first.
IMPORTS = {
    "dense": f"{_MODELS}import faiss, adapter, encoder.prepare, encoder.export, encoder.graph, encoder.model",
    "impact": f"{_MODELS}from transformers import T5ForConditionalGeneration\n"
    "import adapter, term_weights.prepare, term_weights.queries, encoder.graph",
    **dict.fromkeys(("bmp", "seismic"), f"{_MODELS}import adapter, term_weights.prepare, term_weights.queries"),
    "llm-rerank": "import torch._dynamo; from transformers import AutoTokenizer, LlamaForCausalLM\n"
    "import adapter, llm_prepare, llm.local",
    "rerank": f"{_MODELS}from transformers import AutoModelForSequenceClassification, ElectraModel, ModernBertModel\n"
    "from transformers import XLMRobertaModel\nimport adapter, rerank_prepare, document_graph, encoder.export",
    # What Pyserini imports, less its Java machine, which no fork survives.
    "pyserini": "import torch, pandas, scipy.sparse, sklearn.preprocessing, openai, tiktoken, onnxruntime, requests\n"
    "from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM, AutoProcessor, AutoTokenizer\n"
    "from transformers import BertModel, CLIPModel, CLIPProcessor, DistilBertConfig, DPRQuestionEncoder, RobertaModel",
    "colbert": "import adapter; from engine import runtime; runtime.start(1, 0); import transformers, colbert.infra",
}


@pytest.fixture(scope="session")
def warmth(engine: docker.DockerClient) -> Iterator[Warmth]:
    """Return containers that have already imported an engine."""
    made = Warmth(engine)
    yield made
    made.close()


@pytest.fixture
def probe(engine: docker.DockerClient, warmth: Warmth, tmp_path: Path) -> Probe:
    """Run lines of Python in a system's image; what they ``say`` comes back."""

    def run(name: str, lines: str) -> list[Any]:
        system = catalog.system(name)
        image = builder.ImageBuilder(engine, CACHE).ensure(system)
        job = tmp_path / "job"
        job.mkdir(exist_ok=True)  # a test may have put files there
        (job / "probe.py").write_text(PRELUDE + lines)
        (job / "params.json").write_text(json.dumps(system.params))
        (job / "corpus.jsonl").write_text("".join(json.dumps(document) + "\n" for document in DOCUMENTS))
        imports = "import adapter" if system.lean else IMPORTS.get(system.engine, "import adapter")
        return warmth.of(image.digest, imports).ask(job)

    return run


@pytest.fixture
def rerank_probe(engine: docker.DockerClient, warmth: Warmth, tmp_path: Path) -> Callable[..., list[Any]]:
    """Run lines in the image of the engine ``rerank``, beside makers of checkpoints and modules of this folder."""

    def run(lines: str, *restated: str) -> list[Any]:
        image = builder.ImageBuilder(engine, CACHE).ensure_engine(catalog.system("ms-marco-minilm-l6"))
        job = tmp_path / "job"
        shutil.copytree(data_root() / "checkpoints", job / "checkpoints", ignore=shutil.ignore_patterns("__pycache__"))
        for name in restated:
            shutil.copy(Path(__file__).with_name(f"{name}.py"), job)
        (job / "params.json").write_text("{}")
        (job / "probe.py").write_text(GIVEN + lines)
        return warmth.of(image.digest, IMPORTS["rerank"]).ask(job)

    return run


@pytest.fixture(scope="session")
def sparse_models(engine: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of small checkpoints of learned sparse systems."""
    from tests.images import impact, tiny

    folder = tmp_path_factory.mktemp("sparse")
    tiny.make_checkpoints(engine, "bt-splade-l", impact.CHECKPOINTS, folder)
    return folder


@pytest.fixture
def ask(engine: docker.DockerClient, warmth: Warmth, sparse_models: Path, tmp_path: Path) -> Probe:
    """Run lines in the image of an engine of learned sparse retrieval; see ``impact.asker``."""
    from tests.images import impact

    def warm(system: System) -> inside.Warm:
        image = builder.ImageBuilder(engine, CACHE).ensure_engine(system)
        return warmth.of(image.digest, IMPORTS[system.engine])

    return impact.asker(warm, GIVEN, sparse_models, tmp_path)


@pytest.fixture(scope="session")
def colbert_image(engine: docker.DockerClient) -> builder.Image:
    return builder.ImageBuilder(engine, CACHE).ensure_engine(catalog.system("colbertv2-s"))


@pytest.fixture(scope="session")
def colbert_models(
    engine: docker.DockerClient, colbert_image: builder.Image, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    minilm = catalog.system("minilm")
    tree = assets.fetch("minilm", minilm.assets, CACHE, None)
    folder = tmp_path_factory.mktemp("models")
    return make_models(engine, colbert_image.digest, folder, tree / minilm.assets[0].folder)


@pytest.fixture
def colbert(warmth: Warmth, colbert_image: builder.Image, colbert_models: Path, tmp_path: Path) -> Inside:
    return Inside(warmth, colbert_image.digest, IMPORTS["colbert"], colbert_models, tmp_path / "job")
