"""Compare inference backends for transformers of the usual sizes: ``python -m benchmarks.encoder_shapes``.

The weights are random, because the cost of a forward pass does not depend on them.  So this also shows the cost of
systems whose weights only the hub has.  One CPU, real texts of SciFact; texts one at a time (the cross-encoder: pairs
with a document), then documents of 512 tokens (SPLADE: 256) in batches of 8.  Times are of the processor; each is the
lowest of three passes.
"""

from __future__ import annotations

import sys

from benchmarks.run_in_image import SCIFACT, printed_by

# name -> head, class of transformers, its sizes where they are not its defaults, longest document in tokens.
_SHAPES = {
    "BERT-base, first token": ("cls", "BertModel", {}, 512),
    "DistilBERT, mean": ("mean", "DistilBertModel", {}, 512),
    "SPLADE, DistilBERT": ("splade", "DistilBertForMaskedLM", {}, 256),
    "cross-encoder, BERT-base": ("classifier", "BertForSequenceClassification", {"num_labels": 1}, 512),
    "cross-encoder, MiniLM-L6": (
        "classifier",
        "BertForSequenceClassification",
        {"num_labels": 1, "hidden_size": 384, "num_hidden_layers": 6, "intermediate_size": 1536},
        512,
    ),
}
_BACKENDS = ("torch", "onnxruntime", "openvino")

_SCRIPT = """
import json, shutil, subprocess, sys
from pathlib import Path
import torch, transformers
from encoder.prepare import prepare

MEASURE = '''
import gzip, json, sys, time
from pathlib import Path
from encoder.model import Model
folder, head, backend, longest = sys.argv[1:]
documents = [json.loads(line) for line in gzip.open("/job/corpus.jsonl.gz", "rt").read().splitlines()[:24]]
documents = [each["title"] + " " + each["text"] for each in documents]
queries = [json.loads(line)["text"] for line in open("/job/queries.jsonl")][:24]
pairs = list(zip(queries, documents))
one, many = (pairs, pairs) if head == "classifier" else (queries, documents)
model = Model.load(Path(folder), head, backend)
def lowest(work):
    times = []
    for _ in range(3):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times) / 24 * 1e3
rows = [model([text], int(longest))[0].tolist() for text in one]
alone = lowest(lambda: [model([text], int(longest)) for text in one])
model.many(many, int(longest), 8)
batched = lowest(lambda: model.many(many, int(longest), 8))
print(json.dumps([alone, batched, rows]))
'''
for name, (head, kind, sizes, longest) in SHAPES.items():
    declared = getattr(transformers, kind).config_class(**sizes)
    torch.manual_seed(1)
    whole = getattr(transformers, kind)(declared)
    for backend in BACKENDS:
        place = Path("/index/place")
        shutil.copytree("/opt/assets/all-minilm-l6-v2", place / "m", ignore=shutil.ignore_patterns("model.*"))
        whole.save_pretrained(place / "m")
        params = {"model": "m", "head": head, "backend": backend, "document_backend": backend}
        prepare(place, params)
        command = [sys.executable, "-c", MEASURE, str(place / "m"), head, backend, str(longest)]
        said = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        shutil.rmtree(place)
        print("said", json.dumps([name, backend, *said]), flush=True)
"""


def main() -> int:
    """Measure all, print the table in Markdown."""
    files = {name: (SCIFACT / name).read_bytes() for name in ("corpus.jsonl.gz", "queries.jsonl")}
    script = f"SHAPES = {_SHAPES!r}\nBACKENDS = {_BACKENDS!r}\n{_SCRIPT}"
    measured = printed_by("minilm-torch", script, files=files, memory="8g")
    print("| transformer | backend | one text, ms | ratio | document in a batch, ms | ratio | differs |")
    print("|---|---|---:|---:|---:|---:|---:|")
    first = {name: (alone, batched, rows) for name, backend, alone, batched, rows in measured if backend == "torch"}
    for name, backend, alone, batched, rows in measured:
        torch_alone, torch_batched, exact = first[name]
        pairs = [(a, b) for ours, theirs in zip(rows, exact, strict=True) for a, b in zip(ours, theirs, strict=True)]
        print(
            f"| {name} | `{backend}` | {alone:.1f} | {alone / torch_alone:.2f} | {batched:.0f} |"
            f" {batched / torch_batched:.2f} | {max(abs(a - b) for a, b in pairs):.0e} |"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
