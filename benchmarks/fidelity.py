"""What the adapter of a dense system adds to a plain script of the same libraries: ``python -m benchmarks.fidelity``.

Both run in one process in the system's container on one CPU, over 200 documents of SciFact, and answer the same queries
in turn, so that a machine that drifts favours none.  Exit code 1 when ids differ, a score differs by more than 1e-4, or
the adapter's median latency is more than 5 % and more than 0.2 ms above the script's.
"""

from __future__ import annotations

import sys

from benchmarks.in_image import SCIFACT, said_by

_SCRIPT = """
import gzip, json, statistics, time
from pathlib import Path
import adapter
from harness.measure.adapter import Corpus
from harness.records import Envelope

params = json.loads(Path("/job/params.json").read_text())
lines = gzip.open("/job/corpus.jsonl.gz", "rt").read().splitlines()[:200]
Path("/index/corpus.jsonl").write_text("\\n".join(lines) + "\\n")
corpus = Corpus(Path("/index/corpus.jsonl"), 200)
queries = [json.loads(line)["text"] for line in open("/job/queries.jsonl")][:100]
index = Path("/index/made")
index.mkdir()
dense = adapter.ENGINE({**params, "document_tokens": 128}, Envelope("fidelity", 1, 3 << 30), Path("/opt/assets"))
dense.build(corpus, index, lambda done: None)
dense.load(index)

import faiss, torch
from transformers import AutoModel, AutoTokenizer
folder = "/opt/assets/" + params["model"]
tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()

def encode(texts, most):
    batch = tokenizer(texts, padding=True, truncation=True, max_length=most, return_tensors="pt")
    with torch.inference_mode():
        states, mask = model(**batch).last_hidden_state, batch["attention_mask"][:, :, None]
        return torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1)).numpy()

plain, documents = faiss.IndexFlatIP(384), list(corpus)
for start in range(0, 200, 16):
    plain.add(encode([f"{each.title} {each.text}" for each in documents[start : start + 16]], 128))
ids = [each.doc_id for each in documents]

def by_hand(query):
    scores, rows = plain.search(encode([query], 256), 10)
    return [(ids[row], score) for row, score in zip(rows[0].tolist(), scores[0].tolist())]

for query in queries[:20]:
    dense.search(query, 10), by_hand(query)
times, same, difference = ([], []), 0, 0.0
for number in range(5 * len(queries)):
    query = queries[number % len(queries)]
    answers = [None, None]
    for which in ((0, 1) if number % 2 else (1, 0)):
        start, used = time.perf_counter(), time.process_time()
        answers[which] = (dense.search(query, 10) if which == 0 else by_hand(query))
        times[which].append((time.perf_counter() - start, time.process_time() - used))
    ours, theirs = answers
    same += [hit.doc_id for hit in ours] == [doc_id for doc_id, _ in theirs]
    difference = max([difference, *(abs(hit.score - score) for hit, (_, score) in zip(ours, theirs))])
print("said", json.dumps([same, len(times[0]), difference,
                          *(statistics.median(column) * 1e3 for each in times for column in zip(*each))]))
"""


def main() -> int:
    """Measure, print, judge."""
    files = {name: (SCIFACT / name).read_bytes() for name in ("corpus.jsonl.gz", "queries.jsonl")}
    ((same, asked, difference, ours, ours_cpu, theirs, theirs_cpu),) = said_by("minilm", _SCRIPT, files=files)
    print(
        f"minilm: {same} of {asked} answers have the same ids in the same order, "
        f"scores differ by at most {difference:.1e}"
    )
    print(f"median latency: adapter {ours:.2f} ms, plain script {theirs:.2f} ms, ratio {ours / theirs:.3f}")
    print(f"processor time: {ours_cpu:.2f} ms and {theirs_cpu:.2f} ms, ratio {ours_cpu / theirs_cpu:.3f}")
    quick = ours <= max(1.05 * theirs, theirs + 0.2)
    return 0 if same == asked and difference <= 1e-4 and quick else 1


if __name__ == "__main__":
    sys.exit(main())
