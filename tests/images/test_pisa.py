"""The PISA engine in its image."""

from __future__ import annotations

import pytest

from tests.images.conftest import DOCUMENTS, Probe

pytestmark = pytest.mark.docker


BUILT = """
from harness.driver.adapter import Document
GIVEN = {"k1": 0.9, "b": 0.4, "quantise": False, "algorithm": "maxscore"}
def engine(**more):
    return adapter.ENGINE(GIVEN | more, Envelope("test", 1, 1 << 30), Path("/"))
def made(name, documents, **more):
    folder, own = index.parent / name, engine(**more)
    folder.mkdir()
    own.build(documents, folder, done.append)
    own.load(folder)
    return own
done = []
"""


def test_bm25_is_the_formula_over_its_tokens(probe: Probe) -> None:
    lines = f"""{BUILT}
import math, random
draw = random.Random(1)
words = [f"w{{number}}x" for number in range(60)]
texts = [" ".join(draw.choices(words, k=draw.randint(0, 80), weights=range(1, 61))) for _ in range(700)]
documents = [Document(f"d{{number}}", draw.choice(("", "ice")), text) for number, text in enumerate(texts)]
own = made("many", documents)
tokens = [own._tokens(f"{{each.title}} {{each.text}}") for each in documents]
mean = sum(map(len, tokens)) / len(tokens)
def restated(query):
    scores = [0.0] * len(documents)
    for term in own._tokens(query):
        frequency = sum(term in each for each in tokens)
        idf = max(1e-6, math.log((len(tokens) - frequency + 0.5) / (frequency + 0.5)))
        for row, each in enumerate(tokens):
            count = each.count(term)
            scores[row] += idf * count * 1.9 / (count + 0.9 * (0.6 + 0.4 * len(each) / mean))
    best = sorted(range(len(tokens)), key=lambda row: -scores[row])
    return [[f"d{{row}}", scores[row]] for row in best if scores[row]][:10]
queries = [" ".join(draw.choices(words, k=4)) for _ in range(20)] + ["ice", "ice w3x", "w1x w1x w2x"]
for algorithm in adapter._ALGORITHMS:
    own._algorithm = algorithm
    say([[[hit.doc_id, hit.score] for hit in own.search(query, 10)] for query in queries])
say([restated(query) for query in queries])
rounded = made("rounded", documents, quantise=True)
say([[hit.doc_id for hit in rounded.search(query, 10)] for query in queries])
say([done[0], done[-1], own.threads(), sorted(own.libraries()), sorted(own.stages_s())])
"""
    *algorithms, restated, rounded, facts = probe("pisa", lines)
    assert len(algorithms) == 5
    for answers in algorithms:
        for ours, wanted in zip(answers, restated, strict=True):
            assert [score for _, score in ours] == pytest.approx([score for _, score in wanted], rel=1e-5)
            # Of equal scores, either may come first, or be the last that is in.
            firm = [name for name, score in wanted if score > wanted[-1][1] + 1e-4]
            assert set(firm) <= {name for name, _ in ours}
    shared = [len(set(ours) & {name for name, _ in wanted}) for ours, wanted in zip(rounded, restated, strict=True)]
    assert sum(shared) >= 0.8 * sum(map(len, restated)), "scores of 8 bits rank nearly the same"
    assert facts == [0, 700, {"pisa": 1}, ["PyStemmer", "pyterrier-pisa"], ["retrieve", "tokenise"]]


def test_queries_without_known_words_find_nothing(probe: Probe) -> None:
    lines = f"""{BUILT}
own = made("few", corpus)
for query in ("", "the of and", "zzz", "\\U0001f600", "coffee\\x00", "\\ud800 coffee", "coffee " * 3000, "ices ice"):
    say([hit.doc_id for hit in own.search(query, 2)])
once, twice = (own.search(query, 1)[0].score for query in ("ice", "ice ice"))
say(twice / once)
say(len(own.search("mountains of ice, coffee, throw molten rock", 1000)))
own.close()
odd = ("café", "\u68ee\u6797", "\U00020000\U00020001", "zoo", "\u0436\u0443\u043a")
own = made("odd", [Document(f"d{{number}}", "", f"{{word}} a{{number}}") for number, word in enumerate(odd)])
say([[hit.doc_id for hit in own.search(word, 3)] for word in odd])
"""
    no_text, stops, unknown, face, null, half, long, ices, ratio, deep, found = probe("pisa", lines)
    cafe = DOCUMENTS[2]["_id"]
    assert no_text == stops == unknown == face == [] and null == half == long == [cafe] and ices
    assert ratio == pytest.approx(2, rel=1e-5), "a word that comes twice counts twice"
    assert deep == len(DOCUMENTS), "each has one of the words"
    assert found == [[f"d{number}"] for number in range(5)], "terms are sorted as PISA searches them, by bytes"


def test_unknown_parameters_and_other_indexes_are_refused(probe: Probe) -> None:
    lines = f"""{BUILT}
made("few", corpus)
few = index.parent / "few"
more = ("heap", 1), ("k1", -1), ("b", 1.1), ("quantise", 1), ("algorithm", "fast"), ("k1", 1.2), ("quantise", True)
for name, value in more:
    say(refused(lambda: engine(**{{name: value}}).load(few)))
say(sorted(path.name for path in few.iterdir()))
for path in sorted(few.iterdir()):
    path.rename(few.parent / path.name)
    say(refused(lambda: engine().load(few)))
    (few.parent / path.name).rename(path)
"""
    unknown, k1, b, quantise, algorithm, other, exact, files, *missing = probe("pisa", lines)
    assert unknown == "unknown parameter 'heap'; this engine reads algorithm, b, k1, quantise"
    assert k1 == "k1 is -1, must be a number from 0 to inf" and b == "b is 1.1, must be a number from 0 to 1"
    assert quantise == "quantise is 1, must be true or false"
    assert algorithm.startswith("algorithm is 'fast', must be one of maxscore, wand, ")
    assert "built with k1 0.9, the system asks for 1.2" in other and "built with quantise False" in exact
    assert len(files) == len(missing) == 5 and all(missing)
    assert [each for each in missing if "PISA" in each] == ["the index is damaged: a file of PISA's is missing"] * 4


def test_documents_without_words_are_indexed_and_never_found(probe: Probe) -> None:
    lines = f"""{BUILT}
own = made("none", [Document("a", "", ""), Document("b", "", "the of")])
say([hit.doc_id for query in ("ice", " ", "") for hit in own.search(query, 3)])
some = made("some", [Document("a", "", ""), Document("b", "", "the ice"), Document("c", "", "")])
say([hit.doc_id for hit in some.search("ice", 3)])
"""
    assert probe("pisa", lines) == [[], ["b"]]


def test_build_needs_no_room_elsewhere(probe: Probe) -> None:
    """PISA writes its postings once more while it compresses them: /tmp has 64 MiB."""
    lines = f"""{BUILT}
import os
used, prepare = [], adapter._pisathon.prepare_index
def seen(*given, **more):
    used.append(os.environ.get("TMPDIR"))
    return prepare(*given, **more)
adapter._pisathon.prepare_index = seen
made("own", [Document("a", "", "ice")])
say(str(Path(used[0]).parent.relative_to(index.parent)))
say(sorted(path.name for path in (index.parent / "own").iterdir() if path.is_dir()))
"""
    assert probe("pisa", lines) == ["own", []]


def test_index_is_the_same_however_many_postings_are_sorted_at_once(probe: Probe) -> None:
    lines = f"""{BUILT}
import random
import postings
draw = random.Random(1)
words = [f"w{{number}}x" for number in range(60)]
texts = [" ".join(draw.choices(words, k=draw.randint(0, 30), weights=range(1, 61))) for _ in range(200)]
documents = [Document(f"d{{number}}", "", text) for number, text in enumerate(texts)]
for number, run in enumerate((postings.RUN_POSTINGS, 1, 40, 700)):
    postings.RUN_POSTINGS = run
    made(f"by-{{number}}", documents)
    files = {{path.name: path.read_bytes().hex() for path in sorted((index.parent / f"by-{{number}}").iterdir())}}
    say(hashlib.sha256(json.dumps(files).encode()).hexdigest())
    say(sorted(files))
"""
    first, files, *others = probe("pisa", f"import hashlib, json\n{lines}")
    assert len(files) == 5 and others == [first, files] * 3
