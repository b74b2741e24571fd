"""The engine of rerankers against its formulas, restated in float64 (``rerank_loops``), and against transformers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.docker

Lines = Callable[[str], list[Any]]

SETUP = """
import shutil
import numpy, torch
import rerank_loops as loops
from encoder.errors import BadCheckpoint
assets, made = Path("/index/assets"), Path("/index/made")
made.rmdir()
corpus = loops.write_corpus(Path("/tmp/corpus.jsonl"))
ids = [each.doc_id for each in corpus]
"""


@pytest.fixture
def lines(rerank_probe: Callable[..., list[Any]]) -> Lines:
    """Run lines in the engine's image, beside the restatement and the maker of small checkpoints."""
    return lambda text: rerank_probe(SETUP + text, "rerank_loops")


def test_aggregations_equal_their_formulas(lines: Lines) -> None:
    answers = lines("""
loops.make(assets)
for name in loops.RULES:
    for pad in ("real", "s3"):
        say([name, pad, loops.compare(assets, made, corpus, name, pad)])
""")
    assert len(answers) == 10
    for name, pad, found in answers:
        assert found["pairs"] == 64 and found["spread"] > 0.1, "scores that are all alike prove nothing"
        assert found["difference"] <= 1e-5, (name, pad)


# The published geometry: windows of documents of these lengths, and the work of one pair.
GEOMETRY = """
from encoder.config import KINDS, Config
from encoder.tokens import PairForm
from pairs import Layout, Work
from parameters import complete, rule
base = Config("bert", KINDS["bert"], 30522, 512, {"num_hidden_layers": 12, "hidden_size": 768})

def work(length, aggregation, pad="real", tokens=1431, positions=512, **params):
    params = complete({"model": "m", "document_tokens": tokens, "aggregation": aggregation, **params})
    layout = Layout(PairForm([101], [102], [102]), 0, rule(params), 32, tokens, positions, pad == "s3", 8192)
    done = Work(base, pairs=1)
    for part in layout.micro_batches(list(range(32)), [numpy.arange(length)]):
        done.add(part.batch)
    return done.counts()

systems = {"first": ("first", {"tokens": 477}), "avg": ("avg", {}), "max": ("max", {}),
           "parade": ("parade-attn", {}), "long": ("long", {"positions": 8192})}
"""


def test_windows_tokens_and_operations_are_those_of_the_published_table(lines: Lines) -> None:
    windows, tokens, ratios, short, empty = lines(
        GEOMETRY
        + """
lengths = (150, 151, 512, 1024, 1431)
say({name: [work(each, *kind[:1], **kind[1])["windows"] for each in lengths] for name, kind in systems.items()})
full = {name: work(1431, kind[0], **kind[1]) for name, kind in systems.items()}
say({name: each["padded_tokens"] for name, each in full.items()})
say({name: each["flop"] / full["first"]["flop"] for name, each in full.items()})
say([[work(300, "parade-attn", pad)[name] for name in ("tokens", "padded_tokens")] for pad in ("real", "s3")])
say({name: [work(each, kind[0], **kind[1])[key] for each in (0, 1) for key in ("windows", "tokens")]
     for name, kind in systems.items()})
"""
    )
    assert windows == {
        "first": [1, 1, 1, 1, 1],
        "avg": [1, 1, 2, 3, 3],
        "max": [1, 2, 5, 10, 14],
        "parade": [1, 2, 6, 13, 19],
        "long": [1, 1, 1, 1, 1],
    }
    assert tokens == {"first": 512, "avg": 1536, "max": 2590, "parade": 3515, "long": 1466}
    published = {"first": 1, "avg": 3.00, "max": 4.74, "parade": 6.43, "long": 3.40}
    assert ratios == pytest.approx(published, rel=0.01)
    # 19 windows of 185 tokens; 15 are empty but for the query and special tokens, and one holds 75 of the document.
    assert short == [[555, 555], [19 * 35 + 3 * 150 + 75, 3515]]
    assert all(found == [1, 35, 1, 36] for found in empty.values()), "an empty document is one empty window"


# Through the classes that their authors load them with; Ettin's modules by hand.
AS_ITS_AUTHORS = """
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer
from safetensors.torch import load_file
texts = [f"{each.title} {each.text}".strip() for each in corpus] + [loops.words(n, n) for n in (550, 600)]
more = [{"_id": f"t{n}", "title": "", "text": text} for n, text in enumerate(texts)]
Path("/tmp/more.jsonl").write_text("".join(json.dumps(each) + "\\n" for each in more))
queries = [loops.words(n, 50 + n) for n in (1, 9, 30)]

def ettin(folder):
    transformer = AutoModel.from_pretrained(str(folder)).eval()
    parts = ("2_Dense", "3_LayerNorm", "4_Dense")
    dense, norm, last = (load_file(folder / part / "model.safetensors") for part in parts)
    def call(**batch):
        first = transformer(**batch).last_hidden_state[:, 0]
        hidden = torch.nn.functional.gelu(first @ dense["linear.weight"].T)
        hidden = torch.nn.functional.layer_norm(hidden, hidden.shape[-1:], norm["norm.weight"], norm["norm.bias"])
        return hidden @ last["linear.weight"].T + last["linear.bias"]
    return call

for kind in ("bert", "deberta", "electra", "xlm-roberta", "ettin"):
    loops.make(assets, kind, name=kind)
    folder = assets / kind
    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    if kind == "ettin":
        model = ettin(folder)
    else:
        loaded = AutoModelForSequenceClassification.from_pretrained(str(folder)).eval()
        model = lambda **batch: loaded(**batch).logits
    ready = loops.engine(assets, Path("/index") / kind, Corpus(Path("/tmp/more.jsonl"), len(more)), model=kind,
                         head="modules" if kind == "ettin" else "classifier", document_tokens=509, query_tokens=64)
    off, pairs, same = 0.0, 0, True
    for query in queries:
        found = ready.score(query, [each["_id"] for each in more])
        wanted = []
        for text in texts:
            batch = tokenizer([[query, text]], truncation="longest_first", max_length=512, return_tensors="pt")
            if kind in ("xlm-roberta", "ettin"):
                batch.pop("token_type_ids", None)
            with torch.inference_mode():
                wanted.append(float(model(**batch)[0, 0]))
        off = max(off, float(abs(numpy.array(found) - wanted).max()))
        pairs += len(found)
    say([kind, off, pairs, float(numpy.std(wanted))])
"""


def test_published_formats_score_as_their_authors_classes(lines: Lines) -> None:
    answers = lines(AS_ITS_AUTHORS)
    assert len(answers) == 5
    for kind, difference, pairs, spread in answers:
        assert pairs == 54 and spread > 1e-3
        assert difference <= 1e-5, kind


@pytest.mark.parametrize("kind", ["deberta", "electra"])
def test_windows_of_other_encoders_score_as_transformers_encodes_them(lines: Lines, kind: str) -> None:
    """FirstP and MaxP; PARADE over both is held in test_rerank_heads.py."""
    (dtype, added), *answers = lines(
        f"kind = {kind!r}"
        + """
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModel, AutoTokenizer
from safetensors.torch import load_file
loops.make(assets, f"{kind}-linear")
tokenizer = AutoTokenizer.from_pretrained(str(assets / "m"))
model = AutoModel.from_pretrained(str(assets / "m"), attn_implementation="eager").eval()
state = load_file(assets / "m" / "model.safetensors")
say([str(model.dtype), tokenizer("ice", "rock")["input_ids"][:1]])
def score(query, part):
    asked = [tokenizer.cls_token_id, *query, tokenizer.sep_token_id]
    ids = [*asked, *part, tokenizer.sep_token_id]
    types = {"token_type_ids": torch.tensor([[0] * len(asked) + [1] * (len(part) + 1)])} if kind == "electra" else {}
    with torch.inference_mode():
        first = model(input_ids=torch.tensor([ids]), **types).last_hidden_state[0, 0]
    return float(first @ state["cls.weight"][0] + state["cls.bias"][0])
plain = lambda text: tokenizer(text, add_special_tokens=False)["input_ids"]
def right(query, text):
    document = plain(text)[: loops.LONGEST]
    cuts = loops.cut(len(document), name, len(document))
    parts = [document[start : start + count] for start, count in cuts]
    return max(score(plain(query)[: loops.QUERY], part) for part in parts)
for name in ("first", "max"):
    window, stride = loops.RULES[name]
    ready = loops.engine(assets, made, corpus, aggregation=name, window=window, stride=stride)
    say([name, loops.compared(ready, corpus, loops.QUERIES, right)])
# The work that is counted is that of the model's own products, of padded windows and of positions.
from encoder.config import read_config
counted = []
for rows, length in ((1, 5), (3, 17)):
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(input_ids=torch.ones((rows, length), dtype=torch.int64))
    counted.append([counter.get_total_flops(), read_config(assets / "m").flop(rows, length)])
say(["flop", *counted])
"""
    )
    assert dtype == "torch.float32" and (kind == "electra" or added[0] == 1)
    (*compared, (_, *counted)) = answers
    assert [name for name, _ in compared] == ["first", "max"]
    for name, found in compared:
        assert found["pairs"] == 64 and found["spread"] > 0.1, "scores that are all alike prove nothing"
        assert found["difference"] <= 1e-5, name
    assert all(theirs == ours > 0 for theirs, ours in counted)


def test_score_depends_on_nothing_but_its_pair(lines: Lines) -> None:
    answers = lines("""
loops.make(assets)
for name in ("max", "parade-max"):
    first = loops.engine(assets, made, corpus, aggregation=name, window=24, stride=16)
    queries = [loops.words(1 + n % 8, n) for n in range(16 if name == "max" else 5)]
    forward = [first.score(query, ids) for query in queries]
    backward = [first.score(query, ids) for query in reversed(queries)][::-1]
    off = 0.0
    for tokens in (1, 60, 500, 2000):
        other = loops.engine(assets, made, aggregation=name, window=24, stride=16, batch_tokens=tokens)
        for query, wanted in zip(queries[:4], forward):
            found = dict(zip(ids[::-1], other.score(query, ids[::-1])))
            off = max(off, *(abs(found[each] - score) for each, score in zip(ids, wanted)))
    alone = [first.score(queries[0], [each])[0] for each in ids]
    off = max(off, *(abs(one - other) for one, other in zip(alone, forward[0])))
    say([forward == backward, off, [type(each).__name__ for each in forward[0][:1]]])
""")
    assert [(same, kind) for same, _, kind in answers] == [(True, ["float"])] * 2
    assert max(off for _, off, _ in answers) <= 1e-5


def test_edges_are_defined(lines: Lines) -> None:
    nothing, one, absent, cuts, counts, stages, alone, threads = lines("""
loops.make(assets)
ready = loops.engine(assets, made, corpus)
say([ready.score("ice", []), ready.counts()])
say([len(ready.score("ice", ["d7"])), ready.counts()["pairs"]])
say(refused(lambda: ready.score("ice", ["d7", "nowhere"])))
long = loops.words(40, 1)
say([ready.score(long, ids) == ready.score(" ".join(long.split()[:8]), ids), len(set(ready.score("", ids))) > 3])
ready.score("ice rock", ["d0", "d14"])
say(ready.counts())
say(sorted(ready.stages_s()))
hits = ready.search("ice", 5)
best = sorted(zip(ready.score("ice", ids), ids), key=lambda pair: -pair[0])[:5]
say([[hit.doc_id for hit in hits] == [each for _, each in best], [hit.score for hit in hits] == [n for n, _ in best]])
say([ready.threads(), ready.device(), sorted(ready.libraries())])
""")
    size = nothing[1].pop("parameters")
    assert nothing == [[], dict.fromkeys(("pairs", "windows", "tokens", "padded_tokens", "calls", "flop"), 0)]
    assert one == [1, 1] and "'nowhere'" in absent
    assert cuts == [True, True]
    # An empty document, and one of 231 tokens of which the first 77 are read: 2 words, 3 special tokens.
    flop = 2 * 2 * 236 * (24 * 32**2 + 4 * 236 * 32)
    assert counts.pop("parameters") == size > 2 * 12 * 32**2
    assert counts == {"pairs": 2, "windows": 2, "tokens": 5 + 236, "padded_tokens": 472, "calls": 1, "flop": flop}
    assert stages == ["aggregate", "fetch", "score", "tokenise"]
    assert alone == [True, True]
    assert threads[0]["torch_intraop"] == 1 and threads[1] == "cpu" and "torch" in threads[2]


def test_backends_agree_with_torch(lines: Lines) -> None:
    answers = lines("""
import rerank_prepare
for kind, head in (("bert", "classifier"), ("deberta", "classifier"), ("electra", "classifier"), ("linear", "linear")):
    expected = None
    for backend in ("torch", "onnxruntime", "openvino"):
        name = f"{kind}-{backend}"
        loops.make(assets, kind, name=name)
        params = {"model": name, "head": head, "document_tokens": loops.LONGEST, "query_tokens": loops.QUERY,
                  "aggregation": "max", "window": 24, "stride": 16, "backend": backend}
        swept = {**params, "document_tokens": [9, loops.LONGEST]}  # as a sweep asks for
        rerank_prepare.make_ready(assets, swept if backend == "onnxruntime" else params)
        ready = loops.engine(assets, Path("/index") / kind, corpus, **params)
        found = numpy.array([ready.score(query, ids) for query in ("ice", "molten rock of the river", "ash")])
        expected = found if expected is None else expected
        say([kind, backend, float(abs(found - expected).max()), float(expected.std())])
loops.make(assets, "ettin", name="modern")
say(refused(lambda: rerank_prepare.make_ready(assets, {**params, "model": "modern", "head": "modules"})))
""")
    *compared, refusal = answers
    assert len(compared) == 12
    for kind, backend, difference, spread in compared:
        assert difference <= 1e-4 and spread > 1e-3, (kind, backend)
    assert "take one of them" in refusal


def test_preparation_refuses_wrong_tensors_by_name(lines: Lines) -> None:
    answers = lines("""
import encoder.prepare, rerank_prepare
from safetensors.torch import load_file, save_file
wrong = {
    "bert": ["classifier.weight", "bert.pooler.dense.bias", "bert.encoder.layer.1.output.dense.weight"],
    "deberta": ["pooler.dense.weight", "deberta.encoder.rel_embeddings.weight"],
    "electra": ["classifier.out_proj.bias", "electra.embeddings.LayerNorm.weight"],
    "xlm-roberta": ["classifier.dense.weight"],
    "ettin": ["layers.1.mlp.Wo.weight", "2_Dense/linear.weight", "3_LayerNorm/norm.bias", "4_Dense/linear.bias"],
    "linear": ["cls.bias"],
}
heads = {"ettin": "modules", "linear": "linear"}
for kind, tensors in wrong.items():
    params = {"model": kind, "head": heads.get(kind, "classifier"), "document_tokens": 100}
    for tensor in [*tensors, "strange.weight"]:
        for change in ("missing", "shape", "nan"):
            shutil.rmtree(assets / kind, ignore_errors=True)
            loops.make(assets, kind, name=kind)
            place, _, name = tensor.rpartition("/")
            path = assets / kind / place / "model.safetensors"
            state = load_file(path)
            if tensor == "strange.weight":
                state[name] = torch.zeros(3)
            elif change == "missing":
                del state[name]
            else:
                state[name] = torch.zeros(7, 7) if change == "shape" else state[name] * float("nan")
            save_file(state, path, metadata={"format": "pt"})
            said = refused(lambda: rerank_prepare.make_ready(assets, params))
            say([kind, ".".join(name.split(".")[-2:]), change, said])
Path("/tmp/system.json").write_text(json.dumps({"build_params": params, "search_params": {"aggregation": "best"}}))
say(encoder.prepare.main([str(assets), "/tmp/system.json"], rerank_prepare.make_ready))
""")
    *answers, code = answers
    assert len(answers) == 57
    assert [each for each in answers if not each[3]] == []
    unnamed = [each for each in answers if each[1] not in each[3] and each[2] != "nan"]
    assert unnamed == []
    assert code == 1


def test_index_of_another_system_or_damaged_is_refused(lines: Lines) -> None:
    longer, other, cut, kinds = lines("""
loops.make(assets)
loops.engine(assets, made, corpus)
say(refused(lambda: loops.engine(assets, made, document_tokens=100)))
rerank = loops.rerank
rerank.make(assets / "other", "linear", texts=["other words"])
say(refused(lambda: loops.engine(assets, made, model="other")))
path = made / "tokens.bin"
whole = path.read_bytes()
path.write_bytes(whole[:-2])
say(refused(lambda: loops.engine(assets, made)))
from texts import token_type
import scorers
say([token_type(scorers.tokeniser(assets / "m")), len(whole)])
""")
    assert "document_tokens" in longer and "tokeniser" in other and "damaged" in cut
    # Two bytes a token; the longest document is cut at 231.
    assert kinds == ["<u2", 2 * (sum((0, 1, 12, 23, 24, 25, 36, 40, 76, 77, 78, 154, 155, 230, 231)) + 231)]


def test_training_documents_open_with_their_passage_until_they_are_shuffled(lines: Lines) -> None:
    original, shuffled = lines("""
from checkpoints.training import biased
sentences = [list(range(40 * n, 40 * n + 20)) for n in range(400)]
for shuffled in (False, True):
    drawer = biased.BiasedDrawer(sentences, 3, shuffled=shuffled)
    drawn = [drawer.pairs() for _ in range(300)]
    first = sum(set(query[:1]) <= set(right[:13]) for (query, right), *_ in drawn)
    say([first, all(len(text) == 231 for pairs in drawn for _, text in pairs),
         sum(query[0] in wrong[77:] for pairs in drawn for query, wrong in pairs[1:])])
""")
    assert original[0] == 300 and 60 <= shuffled[0] <= 200, "one segment of two to six comes first"
    assert original[1] and shuffled[1]
    # Seven wrong documents in ten have a part of the sentence, none of it within the first third.
    assert 900 * 0.46 <= original[2] <= 900 * 0.66
