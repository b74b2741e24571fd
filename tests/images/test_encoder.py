"""The encoder that engines share, in an image that has all of its backends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.images.conftest import Probe
from tests.images.dense import SCIFACT, put_small_checkpoints
from tests.support.chance import chance

pytestmark = pytest.mark.docker

# Largest cosine difference to PyTorch in float32, and least agreement of the top ten: docs/engines/encoders.md.
TOLERANCES = {
    "onnxruntime": (1e-4, 1.0),
    "openvino": (1e-4, 1.0),
    "torch-bf16": (2e-2, 0.95),
    "openvino-bf16": (2e-2, 0.95),
    "onnxruntime-int8": (1e-1, 0.85),
}


def test_backends_agree_with_torch(probe: Probe, tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "texts.json").write_text(json.dumps(SCIFACT.texts(24, 12)))
    lines = """
import shutil, numpy
from encoder.model import Model
from encoder.prepare import prepare
documents, queries = json.loads(Path("/job/texts.json").read_text())
shipped = Path("/opt/assets/all-minilm-l6-v2")

def scores(folder, backend):
    model = Model.load(folder, "mean", backend, threads=1, params={"normalise": True})
    vectors = model.many(documents, 96, 16)
    found = numpy.array([model([query], 32)[0] for query in queries]) @ vectors.T
    return found, model.threads(), model.libraries()

expected, *_ = scores(shipped, "torch")
best = numpy.argsort(-expected, axis=1)[:, :10]
swept = [["onnxruntime", "onnxruntime-int8"], ["openvino", "openvino-bf16"]]  # as a suite's sweep gives them
for number, several in enumerate((swept, ["torch-bf16"])):
    place = Path("/index") / str(number)
    shutil.copytree(shipped, place / "m")
    prepare(place, {"model": "m", "pooling": "mean", "backend": several[0], "document_backend": several[-1],
                    "document_tokens": 96, "query_tokens": 32})
    for backend in numpy.ravel(several).tolist():
        found, threads, libraries = scores(place / "m", backend)
        theirs = numpy.argsort(-found, axis=1)[:, :10]
        overlap = sum(len(set(a) & set(b)) for a, b in zip(best.tolist(), theirs.tolist())) / best.size
        say([backend, float(abs(found - expected).max()), overlap, threads, libraries,
             sorted(path.name for path in (place / "m").iterdir())])

import openvino
asked = openvino.Core.get_property
openvino.Core.get_property = lambda core, *names: [each for each in asked(core, *names) if each != "BF16"]
found, _, libraries = scores(Path("/index/0/m"), "openvino-bf16")
say(["without", float(abs(found - expected).max()), libraries["openvino_precision"]])
"""
    *measured, (_, difference, precision) = probe("minilm-torch", lines)
    assert precision == "f32" and difference < 1e-4, "a CPU without bfloat16 computes in float32"
    answers = {name: rest for name, *rest in measured}
    assert answers.keys() == TOLERANCES.keys()
    for name, (difference, overlap, threads, libraries, files) in answers.items():
        allowed, least = TOLERANCES[name]
        assert difference <= allowed, name
        assert overlap >= least, name
        assert set(threads.values()) == {1}
        assert name.split("-", maxsplit=1)[0] in libraries
        assert ("model.safetensors" in files) == name.startswith("torch"), "weights that no backend reads are dropped"
    assert answers["onnxruntime-int8"][0] > 1e-3, "this is float32 in disguise"


def test_backend_loads_only_its_own_library(probe: Probe) -> None:
    lines = """
import shutil, subprocess
from encoder.prepare import prepare
shutil.copytree("/opt/assets/all-minilm-l6-v2", "/index/m")
prepare(Path("/index"), {"model": "m", "pooling": "mean", "backend": "onnxruntime", "document_backend": "openvino"})
for backend in ("onnxruntime", "openvino"):
    code = f'''
import sys
from pathlib import Path
from encoder.model import Model
model, lengths = Model.load(Path("/index/m"), "mean", "{backend}"), []
run = model._backend.run
model._backend.run = lambda batch: lengths.append(batch.ids.shape[1]) or run(batch)
model.meet_lengths(16)
model(["a text"], 16)
loaded = {{name for name, module in sys.modules.items() if module}}
print(*sorted({{"torch", "transformers", "onnxruntime", "openvino", "onnx", "openvino_telemetry"}} & loaded), *lengths)
'''
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    say([backend, done.stdout.split(), done.stderr])
"""
    # Without a word on telemetry, which ONNX Runtime's would say where it cannot keep an id.
    plain, compiling = probe("minilm-torch", lines)
    assert plain == ["onnxruntime", ["onnxruntime", "4"], ""]
    assert compiling == ["openvino", ["openvino", *(str(length) for length in range(2, 17)), "4"], ""]


# Checkpoints of each kind, through the classes that their authors load them with.
AS_ITS_AUTHORS = """
import numpy, torch, transformers
import small
from encoder.model import Model
texts = ["rivers of ice", "caf\\u00e9 \\U0001f600", "", "\\u51b0\\u5ddd\\u662f\\u51b0\\u4e4b\\u6cb3", "word " * 700]

class Ance(transformers.RobertaPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.roberta = transformers.RobertaModel(config)
        self.embeddingHead = torch.nn.Linear(config.hidden_size, config.hidden_size)
        self.norm = torch.nn.LayerNorm(config.hidden_size)
        self.post_init()
    def forward(self, **batch):
        return self.norm(self.embeddingHead(self.roberta(**batch)[0][:, 0]))

class RepBert(transformers.BertPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.bert = transformers.BertModel(config)
        self.post_init()
    def forward(self, input_ids, attention_mask, token_type_ids):
        states = self.bert(input_ids, attention_mask, torch.ones_like(input_ids))[0]
        mask = attention_mask[:, :, None]
        return (states * mask).sum(1) / mask.sum(1)

def mean(states, mask):
    return (states * mask[:, :, None]).sum(1) / mask.sum(1)[:, None]

theirs = {
    "dpr-question": ("dpr", transformers.DPRQuestionEncoder, lambda model, batch: model(**batch).pooler_output),
    "dpr-context": ("dpr", transformers.DPRContextEncoder, lambda model, batch: model(**batch).pooler_output),
    "ance": ("ance", Ance, lambda model, batch: model(**batch)),
    "repbert": ("mean", RepBert, lambda model, batch: model(**batch)),
    "bert": ("cls", transformers.BertModel, lambda model, batch: model(**batch).last_hidden_state[:, 0]),
    "bert-multilingual": ("mean", transformers.BertModel,
                          lambda model, batch: mean(model(**batch).last_hidden_state, batch["attention_mask"])),
    "distilbert": ("mean", transformers.DistilBertModel,
                   lambda model, batch: mean(model(**batch).last_hidden_state, batch["attention_mask"])),
}
for kind, (head, loader, call) in theirs.items():
    for safetensors in (False, True):
        folder = Path("/index") / f"{kind}-{safetensors}"
        small.make(folder, kind, texts=texts[:2], safetensors=safetensors,
                   projection=24 if safetensors and "dpr" in kind else 0)
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
        batch = tokenizer(texts, padding=True, truncation=True, max_length=64, return_tensors="pt")
        if kind in ("ance", "distilbert"):
            batch.pop("token_type_ids", None)
        with torch.inference_mode():
            expected = call(loader.from_pretrained(str(folder)).eval(), batch).numpy()
        model = Model.load(folder, head, params={"segment": 1} if kind == "repbert" else {})
        found = model(texts, 64)
        say([kind, list(found.shape), model.dims, float(abs(found - expected).max()), float(abs(expected).mean())])
        many = model.many(texts, 64, 2)
        say([kind, list(many.shape), model.dims, float(abs(many - expected).max()), float(abs(expected).mean())])
"""


def test_each_published_format_is_read_as_by_its_authors(probe: Probe, tmp_path: Path) -> None:
    put_small_checkpoints(tmp_path)
    answers = probe("minilm-torch", AS_ITS_AUTHORS)
    assert len(answers) == 28
    for kind, shape, dims, difference, size in answers:
        assert shape == [5, dims] and dims in (24, 32)
        assert size > 0.1
        assert difference < 1e-5, kind


# Every kind of transformer under every kind of head, as it is exported.
EXPORTED = """
import torch, transformers
import small
from encoder.model import Model
from encoder.prepare import prepare
texts = ["rivers of ice that move slowly", "", "molten rock and ash", "word " * 70, "\\u51b0\\u5ddd 7"]
sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128,
         "hidden_dim": 128, "max_position_embeddings": 130, "initializer_range": 0.2}
bytes_of_text = ("mpnet", "xlm-roberta")
def make(folder, kind, head):
    if head in ("dpr", "ance"):
        return small.make(folder, kind, texts=texts)
    small.make(folder, "ance" if kind in bytes_of_text else "bert", texts=texts)  # for its tokeniser
    (folder / "pytorch_model.bin").unlink()
    rows = json.loads((folder / "config.json").read_text())["vocab_size"]
    declared = transformers.AutoConfig.for_model(kind, vocab_size=rows, **sizes)
    loader = transformers.AutoModelForMaskedLM if head == "splade" else transformers.AutoModel
    model = loader.from_config(declared)
    state = model.state_dict()
    if head == "term_weight":
        state |= {f"tok_proj.{name}": tensor for name, tensor in torch.nn.Linear(32, 1).state_dict().items()}
    (folder / "config.json").write_text(declared.to_json_string())
    small.write_weights(folder, state, safetensors=True)

made = [(kind, head) for kind in ("bert", "distilbert", "electra", "ernie", "mpnet", "xlm-roberta")
        for head in ("mean", "splade")]
made += [("dpr-question", "dpr"), ("dpr-context", "dpr"), ("ance", "ance")]
made += [("bert", head) for head in ("cls", "pooler", "term_weight")]
for number, (kind, head) in enumerate(made):
    if number not in json.loads(Path("/job/chosen.json").read_text()):
        continue
    torch.manual_seed(number)
    folder = Path("/index") / str(number) / "m"
    make(folder, kind, head)
    loaded = Model.load(folder, head)
    exact, size = loaded(texts, 64), loaded.parameters
    side = {"dpr-question": "query_model", "dpr-context": "document_model"}.get(kind, "model")
    prepare(folder.parent, {side: "m", "head": head, "backend": "onnxruntime", "document_backend": "openvino"})
    for backend in ("onnxruntime", "openvino"):
        if (folder / {"onnxruntime": "model.onnx", "openvino": "model.xml"}[backend]).is_file():
            rows = Model.load(folder, head, backend)(texts, 64)
            say([kind, head, backend, list(rows.shape) == list(exact.shape), float(abs(rows - exact).max()),
                 float(abs(exact).max()), Model.load(folder, head, backend).parameters == size])
say(len(made))
"""

# As in the lean image, which has neither PyTorch nor transformers.
WITHOUT_PYTORCH = """
import shutil, subprocess, transformers
import small
from encoder import tokens
from tokenizers import Tokenizer
code = (
    "import sys; sys.modules['torch'] = sys.modules['transformers'] = None; "
    "from encoder import prepare; sys.exit(prepare.main(sys.argv[1:]))"
)
shipped = "/opt/assets/all-minilm-l6-v2"
tokenisers = [tokens.read(Path(shipped)), transformers.AutoTokenizer.from_pretrained(shipped).backend_tokenizer]
tokenisers = [Tokenizer.from_str(each.to_str()) for each in tokenisers]
for each in tokenisers:
    each.no_padding()
    each.no_truncation()
say([each.to_str() for each in tokenisers])
tried = [("minilm", "mean", "onnxruntime"), ("minilm", "cls", "onnxruntime")]
tried += [("minilm", "mean", "torch"), ("minilm", "pooler", "onnxruntime"), ("bert", "mean", "onnxruntime")]
tried += [("distilbert", "mean", "onnxruntime")]
for kind, head, backend in tried:
    folder = Path("/index") / f"{kind}-{head}-{backend}"
    if kind == "minilm":
        shutil.copytree(shipped, folder / "m")
    else:
        small.make(folder / "m", kind, texts=["rivers of ice"], safetensors=True)
    params = {"model": "m", "head": head, "backend": backend, "document_backend": "onnxruntime"}
    (folder / "told").write_text(json.dumps({"build_params": params, "search_params": {}}))
    command = [sys.executable, "-c", code, str(folder), str(folder / "told")]
    done = subprocess.run(command, capture_output=True, text=True)
    say([kind, head, backend, done.returncode, done.stderr, (folder / "m" / "model.onnx").is_file()])
"""


def test_plain_bert_is_made_ready_without_pytorch(probe: Probe, tmp_path: Path) -> None:
    put_small_checkpoints(tmp_path)
    (ours, theirs), *prepared = probe("minilm-torch", WITHOUT_PYTORCH)
    assert ours == theirs, "the tokeniser as transformers applies it"
    lacking = [None, None, "torch", "torch", "transformers", "torch"]  # the small one has a vocab.txt alone
    assert len(prepared) == len(lacking)
    for (*tried, code, said, written), package in zip(prepared, lacking, strict=True):
        asked = f"this checkpoint needs {package}, which the lean image lacks\n"
        assert (code, said, written) == ((3, asked, False) if package else (0, "", True)), tried


# Counted by PyTorch itself, of the products that it makes.
COUNTED = """
import torch
from torch.utils.flop_counter import FlopCounterMode
for number, (kind, head) in enumerate(made):
    if kind in ("electra", "ernie") or head in ("ance", "pooler", "term_weight"):
        continue
    folder = Path("/index") / f"counted-{number}"
    make(folder, kind, head)
    model = Model.load(folder, head)
    graph = model._backend._graph
    graph.transformer.set_attn_implementation("eager")
    for texts_of in (["rivers of ice"], texts[:3]):
        batch = model.tokenise(texts_of, 64)
        arrays = (batch.ids, batch.mask, batch.types)[: 3 if graph.declared.kind.token_types else 2]
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            graph(*map(torch.from_numpy, arrays))
        say([kind, head, counter.get_total_flops(), model.counts([batch]),
             sum(each.numel() for each in graph.transformer.parameters())])
"""


@pytest.mark.parametrize("count", [6, pytest.param(18, marks=pytest.mark.soak)])
def test_exported_model_equals_torch(probe: Probe, tmp_path: Path, count: int) -> None:
    put_small_checkpoints(tmp_path)
    chosen = chance("exported models").sample(range(18), count)
    (tmp_path / "job" / "chosen.json").write_text(json.dumps(chosen))
    *answers, kinds = probe("minilm-torch", EXPORTED)
    assert kinds == 18
    # An encoder of DPR has the one form that its side asks for.
    assert len(answers) == sum(1 if number in (12, 13) else 2 for number in chosen)
    for kind, head, backend, same_shape, difference, size, same_parameters in answers:
        assert same_shape and size > 0.1 and same_parameters, (kind, head, backend)
        # Weights of terms before they are rounded to impacts, and vectors before they are normalised.
        assert difference < 1e-4, (kind, head, backend)


def test_counted_work_is_that_of_the_models_own_products(probe: Probe, tmp_path: Path) -> None:
    put_small_checkpoints(tmp_path)
    setup, _ = EXPORTED.split("for number,", 1)
    answers = probe("minilm-torch", setup + COUNTED)
    assert len(answers) == 22
    for kind, head, made, counts, parameters in answers:
        assert counts["flop"] == made > 0, (kind, head)
        assert 0 <= counts["parameters"] - parameters < 2000, "the head's own are added"


def test_pooling_normalisation_prefix_and_segment_each_change_the_vector(probe: Probe, tmp_path: Path) -> None:
    put_small_checkpoints(tmp_path)
    lines = """
import numpy
import small
from encoder.model import Model
folder = Path("/index/m")
small.make(folder, "bert", texts=["a title of a text"])
changed = {
    "mean": ("mean", {}), "cls": ("cls", {}), "pooler": ("pooler", {}), "normalise": ("mean", {"normalise": True}),
    "prefix": ("mean", {"prefix": "query: "}), "segment": ("mean", {"segment": 1}),
}
vectors = {name: Model.load(folder, head, params=params)(["a text"], 32)[0] for name, (head, params) in changed.items()}
pair = {segments: Model.load(folder, "mean", params={"segments": segments})([("a title", "a text")], 32)[0]
        for segments in (False, True)}
rows = [*vectors.values(), pair[False], pair[True]]
say([[float(abs(a - b).max()) for b in rows] for a in rows])
say(float(numpy.linalg.norm(vectors["normalise"])))
"""
    differences, norm = probe("minilm-torch", lines)
    assert all(each > 1e-3 for i, row in enumerate(differences) for j, each in enumerate(row) if i != j)
    assert norm == pytest.approx(1, abs=1e-5)


def test_unusual_texts_are_encoded(probe: Probe) -> None:
    lines = """
from encoder.model import Model
model = Model.load(Path("/opt/assets/all-minilm-l6-v2"), "mean", params={"normalise": True})
texts = ["", " ", "\\U0001f600\\U0001f600", "the of and", "\\ud800 half", "word " * 100_000, "\\u0000",
         "\\u51b0\\u5ddd"]
rows = model.many(texts, 256, 4)
say([list(rows.shape), [float((row ** 2).sum()) for row in rows]])
say(int(model.tokenise(texts, 256).ids.shape[1]))
texts.append(("a title", "\\ud800 and its text"))
together = model.tokenise(texts, 256)
for number, text in enumerate(texts):
    alone, length = model.tokenise([text], 256), int(together.mask[number].sum())
    same = alone.ids.tolist() == [together.ids[number, :length].tolist()]
    padded = set(together.ids[number, length:].tolist()) | set(together.mask[number, length:].tolist())
    say([same, alone.mask.tolist() == [[1] * length], sorted(padded)])
say(refused(lambda: model(["a"], 513)))
"""
    (shape, norms), longest, *rows, refusal = probe("minilm-torch", lines)
    assert shape == [8, 384] and longest == 256
    assert norms == pytest.approx([1] * 8, abs=1e-4)
    assert len(rows) == 9, "one text is encoded by another call than several are"
    assert all(same and full and padded in ([0], []) for same, full, padded in rows), "[PAD] is token 0"
    assert "513" in refusal and "512 positions" in refusal
