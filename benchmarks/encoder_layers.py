"""Show which layers take an index build's time: ``python -m benchmarks.encoder_layers``.

The documents of SciFact, cut and batched as ``minilm``'s build does, under OpenVINO on one CPU, with its counters for
each layer.  It also prints the floating-point operations of a document, and the rate of NumPy's matrix product on the
same CPU in float32.
"""

from __future__ import annotations

import sys

from benchmarks.run_in_image import SCIFACT, printed_by

_DOCUMENTS = 512

_SCRIPT = """
import gzip, json, time
from collections import Counter
from pathlib import Path
import numpy, openvino
from encoder import tokens
from encoder.checkpoint import config

folder = Path("/opt/assets/all-minilm-l6-v2")
declared = json.loads((folder / "config.json").read_text())
documents = [json.loads(line) for line in gzip.open("/job/corpus.jsonl.gz", "rt").read().splitlines()[:DOCUMENTS]]
texts = [each["title"] + " " + each["text"] for each in documents]
tokeniser = tokens.Tokens(tokens.read(folder), config(folder).vocabulary, segments=False, segment=0, name="m")
encodings = sorted(tokeniser.encode(texts, 256), key=lambda each: -len(each.ids))
batches = [tokeniser.batch(encodings[start : start + 16]) for start in range(0, len(encodings), 16)]

core = openvino.Core()
able = core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
def compiled(profile):
    hint = "bf16" if "BF16" in able else "f32"
    options = {"INFERENCE_PRECISION_HINT": hint, "INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1, "PERF_COUNT": profile}
    model = core.compile_model(core.read_model(str(folder / "model.xml")), "CPU", options)
    return model, model.create_infer_request()

def run(model, request, batch):
    given = {"input_ids": batch.ids, "attention_mask": batch.mask, "token_type_ids": batch.types}
    request.infer({next(iter(each.names)): given[next(iter(each.names))] for each in model.inputs})

times = {}
for profile in (False, True):
    model, request = compiled(profile)
    run(model, request, batches[-1])
    layers = Counter()
    start = time.process_time()
    for batch in batches:
        run(model, request, batch)
        if profile:
            for each in request.get_profiling_info():
                layers[each.node_type] += each.real_time.total_seconds()
    times[profile] = time.process_time() - start

hidden, inner, depth = (declared[name] for name in ("hidden_size", "intermediate_size", "num_hidden_layers"))
lengths = [int(batch.mask.shape[1]) for batch in batches for _ in batch.ids]
linear = sum(length * 2 * depth * (4 * hidden * hidden + 2 * hidden * inner) for length in lengths)
attention = sum(4 * depth * length * length * hidden for length in lengths)

a, b = (numpy.random.default_rng(1).random(shape, dtype=numpy.float32) for shape in ((4096, hidden), (hidden, inner)))
best = 1e9
for _ in range(20):
    start = time.perf_counter()
    a @ b
    best = min(best, time.perf_counter() - start)
precision = model.get_property("INFERENCE_PRECISION_HINT").get_type_name()
print("said", json.dumps({
    "precision": precision, "documents": len(texts), "tokens": sum(lengths) / len(lengths), "seconds": times[False],
    "layers": dict(layers), "linear": linear, "attention": attention, "numpy": 2 * 4096 * hidden * inner / best,
}))
"""


def main() -> int:
    """Measure, print the table in Markdown."""
    files = {"corpus.jsonl.gz": (SCIFACT / "corpus.jsonl.gz").read_bytes()}
    (said,) = printed_by("minilm", f"DOCUMENTS = {_DOCUMENTS}\n{_SCRIPT}", files=files)
    documents, measured = said["documents"], sum(said["layers"].values())
    work = (said["linear"] + said["attention"]) / documents
    each = said["seconds"] / documents
    print(
        f"{documents} documents, {said['tokens']:.0f} tokens each, {said['precision']}: {each * 1e3:.0f} ms of a CPU "
        f"and {work / 1e9:.2f} billion floating-point operations a document, {work / each / 1e9:.0f} billion a second; "
        f"NumPy's matrix product in float32: {said['numpy'] / 1e9:.0f} billion a second; FullyConnected: "
        f"{said['linear'] / said['layers']['FullyConnected'] / 1e9:.0f}, of {said['linear'] / documents / 1e9:.2f}\n"
    )
    print("| layer | ms a document | share |")
    print("|---|---:|---:|")
    for layer, seconds in sorted(said["layers"].items(), key=lambda pair: -pair[1]):
        if seconds >= measured / 200:
            print(f"| {layer} | {seconds / documents * 1e3:.1f} | {seconds / measured:.0%} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
