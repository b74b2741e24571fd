"""The engine of static embeddings in its image."""

from __future__ import annotations

import math

import pytest

from tests.images.conftest import DOCUMENTS, MADE_CLOCK, Probe

pytestmark = pytest.mark.docker

# Each is one token of the vocabulary, so the encoder reads it as the distillation does.
_WORDS = ["ice", "mountain", "volcano", "coffee", "house", "people", "the", "of", "drink", "ash", "river", "talk"]


def test_vectors_are_model2vecs_and_rankings_numpys(probe: Probe) -> None:
    lines = """
import importlib.util, numpy
from model2vec import StaticModel
from tokenizers import Tokenizer
own = engine()
done = []
own.build(corpus, index, done.append)
own.verify_index(corpus, index)
for file in index.iterdir():
    file.chmod(0o444)
index.chmod(0o555)
own.load(index)
folder = Path("/opt/assets/static")
embeddings, tokeniser = numpy.load(folder / "embeddings.npy"), Tokenizer.from_file(str(folder / "tokenizer.json"))
bare = StaticModel(embeddings, tokeniser, normalize=True)
def restated(text):
    tokens = tokeniser.encode(text, add_special_tokens=False).ids
    mean = embeddings[[each for each in tokens if each != tokeniser.token_to_id("[UNK]")]].astype("f8").mean(axis=0)
    return mean / numpy.linalg.norm(mean)
ids = [each.doc_id for each in corpus]
texts = [f"{each.title} {each.text}" if each.title else each.text for each in corpus]
stored = numpy.load(index / "vectors.npy")
say([float(abs(stored - bare.encode(texts)).max()), float(abs(stored - [restated(text) for text in texts]).max())])
queries = ["mountains of ice", "throw molten rock", "coffee \\U0001f600", "zzqx unaffable", "ice ice"]
answers = own.search_batch(queries, 4)
for query, answer in zip(queries, answers):
    scores = stored @ bare.encode([query])[0].astype("f4")
    plain = [[ids[row], float(scores[row])] for row in numpy.argsort(-scores, kind="stable")]
    say([[[hit.doc_id, hit.score] for hit in answer], plain, answer == own.search(query, 4)])
own.search("molten rock", 3)
say([own.counts(), [len(tokeniser.encode("molten rock", add_special_tokens=False).ids), *embeddings.shape]])
say([sorted(own.stages_s()), set(own.threads().values()) == {1}, sorted(own.libraries()), done[0], done[-1]])
say([name for name in ("torch", "transformers", "huggingface_hub") if importlib.util.find_spec(name)])
for query in ("", " ", "\\U0001f600", "coffee\\x00", "\\ud800 coffee", "coffee " * 3000):
    say([hit.doc_id for hit in own.search(query, 1)])
say([[hit.doc_id for hit in own.search("molten rock", k)] for k in (1, 2, 3, 9)])
own.close()
index.chmod(0o755)
"""
    differences, *rankings, work, facts, heavy, no_text, blank, face, null, half, long, depths = probe(
        "static-minilm", lines
    )
    bare, restated = differences
    assert bare <= 1e-6 and restated <= 1e-3, "embeddings and vectors are float16 in model2vec"
    for ours, plain, alone in rankings:
        assert [name for name, _ in ours] == [name for name, _ in plain] and alone
        assert [score for _, score in ours] == pytest.approx([score for _, score in plain], abs=1e-6)
    assert [ours[0][0] for ours, _, _ in rankings[:3]] == ["glacier", "volcano", DOCUMENTS[2]["_id"]]
    assert facts == [["encode", "retrieve", "tokenise"], True, ["model2vec", "numpy", "tokenizers"], 0, len(DOCUMENTS)]
    counts, (tokens, rows, size) = work
    assert counts == {"flop": tokens * size, "parameters": rows * size}
    assert heavy == [] and no_text == blank == face == [], "a query without known tokens finds nothing"
    assert null == half == long == [DOCUMENTS[2]["_id"]]
    assert depths[1][:2] == ["volcano", "twin"], "of equal scores the earlier document is first"
    assert [len(each) for each in depths] == [1, 2, 3, 4] and depths[3][:3] == depths[2]


def test_stages_count_every_moment_of_a_search_once(probe: Probe) -> None:
    lines = """
from model2vec import StaticModel
own = engine()
own.build(corpus, index, lambda done: None)
own.load(index)
takes(StaticModel, "tokenize", 1)
takes(StaticModel, "_encode_batch", 10)
takes(own, "_nearest", 100)
start = now[0]
own.search_batch(["molten rock", "coffee"], 3)
say([own.stages_s(), now[0] - start])
"""
    ((stages, spent),) = probe("static-minilm", MADE_CLOCK + lines)
    assert stages == {"tokenise": 1, "encode": 10, "retrieve": 200} and sum(stages.values()) == spent


def test_embeddings_keep_the_encoders_distances_under_zipfs_weights(probe: Probe) -> None:
    encoder = f"""
from encoder.model import Model
model = Model.load(Path("/opt/assets/all-minilm-l6-v2"), "mean")
say(model({_WORDS}, 8).tolist())
"""
    distilled = f"""
import numpy
from tokenizers import Tokenizer
folder = Path("/opt/assets/static")
made = numpy.load(folder / "embeddings.npy").astype("f8")
tokeniser = Tokenizer.from_file(str(folder / "tokenizer.json"))
ranks = numpy.arange(2, len(made) + 2)
weights = 1e-4 / (1e-4 + (1 / ranks) / (1 / ranks).sum())
plain = made / weights[:, None]
spread = (plain.T @ plain) / len(plain)
variances = numpy.diag(spread)
say([list(made.shape), tokeniser.get_vocab_size(), sum("[unused" in each for each in tokeniser.get_vocab())])
say([float(abs(plain.mean(axis=0)).max()), float(abs(spread - numpy.diag(variances)).max() / variances.max())])
say(bool((numpy.diff(variances) <= 1e-3 * variances[:-1]).all()))
say(plain[[tokeniser.token_to_id(each) for each in {_WORDS}]].tolist())
"""
    (whole,) = probe("minilm-torch", encoder)
    ((tokens, dims), known, unused), (mean, mixed), falls, reduced = probe("static-minilm", distilled)
    assert dims == 256 and tokens == known and unused == 0
    assert mean <= 1e-3 and mixed <= 1e-3 and falls, "principal components: centred, uncorrelated, in falling order"
    for one in range(len(_WORDS)):
        for other in range(one):
            far, near = math.dist(whole[one], whole[other]), math.dist(reduced[one], reduced[other])
            assert 0.85 * far <= near <= 1.005 * far, (_WORDS[one], _WORDS[other], near / far)


def test_documents_without_tokens_score_zero_and_other_indexes_are_refused(probe: Probe) -> None:
    lines = """
from harness.driver.adapter import Document
given = [Document("a", "", ""), Document("b", "", "\\U0001f600"), Document("c", "Ice", "ice")]
own = engine()
own.build(given, index, lambda _: None)
own.verify_index(given, index)
own.load(index)
say([[hit.doc_id, round(hit.score, 3)] for hit in own.search("ice", 3)])
for changes in ({"k1": 1}, {"query_tokens": 0}, {"document_tokens": 8}):
    say(refused(lambda: engine(**changes).load(index)))
"""
    ranking, unknown, none, other = probe("static-minilm", lines)
    assert ranking == [["c", pytest.approx(1, abs=2e-3)], ["a", 0], ["b", 0]]
    assert unknown == "unknown parameter 'k1'; this engine reads document_tokens, query_tokens"
    assert none == "query_tokens is 0, must be a whole number, at least 1"
    assert "built with document_tokens 512, the system asks for 8" in other
