"""Measure the effect of a searching JVM's options on a query: ``python -m benchmarks.jvm_options [ROUNDS]``.

One container on one CPU holds BM25's index of SciFact.  In each round every set of options gets a fresh process, in
turn: it loads, answers its first query, warms up on 100 queries, and answers 200 others.  Warm-up is the driver's own;
it ends after 60 s of work at the latest.  The median of the rounds is printed, as a table in Markdown.  The first line
is what images run (``images/shared/jvm/runtime.py``).
"""

from __future__ import annotations

import statistics
import sys

from benchmarks.run_in_image import SCIFACT, printed_by

ROUNDS = 3

_SCRIPT = """
import gzip, json, os, statistics, time
from pathlib import Path
import adapter
from harness.driver import scenarios
from harness.driver.adapter import Corpus
from harness.driver.procfs import CompilerClock
from harness.driver.records import Envelope
from jvm import runtime

params = json.loads(Path("/job/params.json").read_text())
lines = gzip.open("/job/corpus.jsonl.gz", "rt").read().splitlines()
Path("/index/corpus.jsonl").write_text("\\n".join(lines) + "\\n")
queries = [json.loads(line)["text"] for line in open("/job/queries.jsonl")]
first, warm, timed = queries[0], queries[:100], queries[100:300]
corpus, index = Corpus(Path("/index/corpus.jsonl"), len(lines)), Path("/index/made")
index.mkdir()

def engine():
    return adapter.ENGINE(params, Envelope("jvm", 1, 3 << 30), Path("/opt/assets"))

def asked(system, texts):
    took = []
    for text in texts:
        start = time.perf_counter_ns()
        system.search(text, 10)
        took.append(time.perf_counter_ns() - start)
    return took

def look(more, shared):
    usual = runtime.options
    mapped = ["-XX:SharedArchiveFile=" + str(runtime.ARCHIVE)] if shared else []
    runtime.search_options = lambda heap_mib, cpus: [*usual(heap_mib, cpus), *more, *mapped]
    system, compilers = engine(), CompilerClock()
    start = time.perf_counter()
    system.load(index)
    load_s = time.perf_counter() - start
    first_ms = asked(system, [first])[0] / 1e6
    start = time.perf_counter()
    _, steady = scenarios.warm_up(lambda: sum(asked(system, warm)), len(warm), 1 << 30, compilers)
    warm_s, before_ns, start = time.perf_counter() - start, compilers(), time.perf_counter_ns()
    took = sorted(each for _ in range(5) for each in asked(system, timed))
    compiling = (compilers() - before_ns) / (time.perf_counter_ns() - start)
    anonymous = next(line for line in open("/proc/self/status") if line.startswith("RssAnon")).split()[1]
    p95 = took[len(took) * 95 // 100]
    return [load_s, first_ms, warm_s, statistics.mean(took) / 1e6, statistics.median(took) / 1e6, p95 / 1e6,
            100 * compiling, int(anonymous) / 1024, steady]

def in_a_child(work):
    child = os.fork()
    if not child:
        work()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0

in_a_child(lambda: engine().build(corpus, index, lambda done: None))
for _ in range(ROUNDS):
    for name, more, shared in WAYS:
        def one():
            print("said", json.dumps([name, *look(more, shared)]), flush=True)
        in_a_child(one)
"""

_SETTLE = ("-XX:-TieredCompilation", "-XX:PerMethodTrapLimit=0", "-XX:PerBytecodeTrapLimit=0")
# Name, options, and whether the JVM maps the archive of a search's classes.
_WAYS = (
    ("C2 alone without traps, class archive (chosen)", _SETTLE, True),
    ("C2 alone without traps", _SETTLE, False),
    ("C2 alone", _SETTLE[:1], False),
    ("as Java comes (C1, then C2)", (), False),
    ("as Java comes, without traps", _SETTLE[1:], False),
    ("as Java comes, `-Xbatch`", ("-Xbatch",), False),
    ("C1 alone", ("-XX:TieredStopAtLevel=1",), False),
)
_HEADERS = (
    "options",
    "load, s",
    "first query, ms",
    "warm after, s",
    "mean, ms",
    "p50, ms",
    "p95, ms",
    "compilers, % of a CPU",
    "anonymous, MiB",
)


def main(arguments: list[str]) -> int:
    """Measure, print."""
    files = {name: (SCIFACT / name).read_bytes() for name in ("corpus.jsonl.gz", "queries.jsonl")}
    rounds = int(arguments[0]) if arguments else ROUNDS
    measured = printed_by("bm25", f"ROUNDS, WAYS = {rounds}, {_WAYS!r}\n{_SCRIPT}", files=files)
    print("| " + " | ".join(_HEADERS) + " |\n|---|" + "---:|" * (len(_HEADERS) - 1))
    for name, *_ in _WAYS:
        looks = [figures for what, *figures in measured if what == name]
        load_s, first_ms, warm_s, *times, compiling, mib, _ = (
            statistics.median(column) for column in zip(*looks, strict=True)
        )
        settled = sum(figures[-1] for figures in looks)
        warm = f"{warm_s:.1f}" if settled == len(looks) else f"{warm_s:.1f} (level in {settled} of {len(looks)})"
        figures = (f"{load_s:.2f}", f"{first_ms:.0f}", warm, *(f"{time:.3f}" for time in times))
        print("| " + " | ".join((name, *figures, f"{compiling:.1f}", f"{mib:.0f}")) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
