"""Wrong, extreme or unfinished input of the ColBERT engine has a clear outcome."""

from __future__ import annotations

import pytest

from tests.images.colbert import METHODS, Inside, documents
from tests.images.conftest import DOCUMENTS
from tests.support.chance import drawn

pytestmark = pytest.mark.docker

BAD = """
import contextlib, io, torch
from engine import checkpoint
from safetensors.torch import load_file, save_file
def bad_one(number):
    global bad, weights
    models = folder(f"models-{number}")
    bad, weights = models / "bad", models / "bad" / "model.safetensors"
    shutil.copytree("/models/tiny", bad)
    (models / "system.json").write_text(json.dumps({"build_params": {"checkpoint": "bad"}, "search_params": {}}))
    return [str(models), str(models / "system.json")]
def change(**values):
    tensors = load_file(weights)
    for name, value in values.items():
        tensors.pop(name) if value is None else tensors.update({name: value})
    save_file(tensors, weights, metadata={"format": "pt"})
def rewrite(name, old, new):
    (bad / name).write_text((bad / name).read_text().replace(old, new))
def prepare(*told):
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        code = checkpoint.main(*told)
    say([code, said.getvalue().splitlines()])
"""

BROKEN = {
    "no projection": ("change(**{'linear.weight': None})", "it lacks linear.weight"),
    "another transformer": (
        "tensors = {name.replace('bert.', 'distilbert.'): value for name, value in load_file(weights).items()}\n"
        "save_file(tensors, weights, metadata={'format': 'pt'})",
        "does not fit the model",
    ),
    "half a transformer": (
        "change(**{'bert.encoder.layer.1.output.dense.weight': None})",
        "is no ColBERT checkpoint: it lacks bert.encoder.layer.1.output.dense.weight",
    ),
    "another size": ("change(**{'linear.weight': torch.zeros(128, 32)})", "does not fit the model"),
    "cut off": ("weights.write_bytes(weights.read_bytes()[:-1000])", "model.safetensors cannot be read"),
    "a pickle cut off": (
        "torch.save(load_file(weights), bad / 'pytorch_model.bin'); weights.unlink()\n"
        "whole = (bad / 'pytorch_model.bin').read_bytes()\n"
        "(bad / 'pytorch_model.bin').write_bytes(whole[: len(whole) // 2])",
        "pytorch_model.bin cannot be read",
    ),
    "no weights": ("weights.unlink()", "neither model.safetensors nor pytorch_model.bin"),
    "no numbers": ("change(**{'linear.weight': torch.full((128, 64), float('nan'))})", "values that are no numbers"),
    "no query marker": (
        "rewrite('tokenizer.json', '[unused0]', '[gone0]'); rewrite('vocab.txt', '[unused0]', '[gone0]')",
        "no token '[unused0]', which marks a query",
    ),
    "no document marker": (
        "rewrite('tokenizer.json', '[unused1]', '[gone1]'); rewrite('vocab.txt', '[unused1]', '[gone1]')",
        "no token '[unused1]', which marks a document",
    ),
    "a tokenizer of another model": (
        "[shutil.copy(f'/models/trained/{each}', bad) for each in ('tokenizer.json', 'vocab.txt')]",
        "they belong to two models",
    ),
    "no model": ('rewrite(\'config.json\', \'"model_type": "bert"\', \'"model_type": "nothing"\')', "names no model"),
    "code of its own": (
        "(bad / 'own.py').write_text(\"open('/index/ran', 'w')\\nclass OwnModel: pass\")\n"
        "named = json.loads((bad / 'config.json').read_text()) | {'auto_map': {'AutoModel': 'own.OwnModel'}}\n"
        "(bad / 'config.json').write_text(json.dumps(named))",
        "config.json names code of its own (auto_map)",
    ),
    "no configuration": ("(bad / 'artifact.metadata').write_text('{')", "artifact.metadata cannot be read"),
}


def test_a_bad_checkpoint_is_refused_in_one_line(colbert: Inside) -> None:
    lines = f"""
{BAD}
for number, breaks in enumerate(given["breaks"]):
    told = bad_one(number)
    exec(breaks)
    prepare(*told)
done = subprocess.run([sys.executable, "-m", "engine.checkpoint", *told], capture_output=True, text=True, check=False)
say([done.returncode, done.stderr.splitlines()])
say(Path("/index/ran").exists())
"""
    *answers, alone, ran = colbert(lines, breaks=[breaks for breaks, _ in BROKEN.values()])
    for (case, (_, words)), (code, said) in zip(BROKEN.items(), answers, strict=True):
        assert code == 1 and len(said) == 1, (case, said)
        assert words in said[0] and said[0].startswith("bad"), (case, said)
    assert alone == answers[-1], "as the making of an image runs it"
    assert not ran, "no code of a checkpoint is run"


def test_a_good_checkpoint_is_named_by_its_content(colbert: Inside) -> None:
    lines = f"""
{BAD}
told = bad_one("whole")
torch.save(load_file(weights), bad / "pytorch_model.bin")
prepare(*told)
say(sorted(path.name for path in bad.iterdir()))
say([checkpoint.fingerprint(Path("/models") / name) for name in ("tiny", "tiny", "other")])
say(checkpoint.fingerprint(bad))
"""
    (code, said), files, (tiny, again, other), kept = colbert(lines)
    assert (code, said) == (0, [])
    assert "fingerprint.json" in files and "pytorch_model.bin" not in files, "one form of the weights is enough"
    assert tiny == again == kept != other


def test_other_index_is_refused(colbert: Inside) -> None:
    lines = """
made = built(PLAID, given["documents"])
for change in ({"nbits": 1}, {"document_tokens": 180}, {"checkpoint": "other"}):
    refused(engine({**PLAID, **change}).load, made)
refused(engine(UNCOMPRESSED).load, made)
refused(engine(PLAID).load, folder("empty"))
meta = json.loads((made / "built-with.json").read_text())
(made / "built-with.json").write_text(json.dumps({**meta, "engine": "colbert-ai 0.2.1"}))
refused(engine(PLAID).load, made)
(made / "built-with.json").write_text(json.dumps({**meta, "documents": 3}))
refused(engine(PLAID).load, made)
(made / "built-with.json").write_text(json.dumps({"vectors": 4}))
refused(engine(PLAID).load, made)
(made / "built-with.json").write_text(json.dumps(meta))
from index_files import doc_ids
doc_ids.write(made, ["d 0"])
refused(engine(PLAID).load, made)
(made / doc_ids.BYTES).unlink()
refused(engine(PLAID).load, made)
for change in ({"method": "median"}, {"nbits": 3}):
    refused(engine, {**PLAID, **change})
refused(engine, {**UNCOMPRESSED, "candidates": "some"})
refused(engine, {**DESSERT, "bits": 17})
refused(engine, {**DESSERT, "scored": 0})
refused(engine(PLAID, gpus=1).load, made)
refused(engine(PLAID).build, corpus([], "none"), folder("nothing"), lambda _: None)
"""
    said = colbert(lines, documents=documents(30))
    nbits, tokens, weights, method, empty, version, fewer, foreign, ids, lacking, *values, gpu, none = said
    median, three, some, bits, scored = values
    assert nbits == "the index was built with nbits 2, the system asks for 1; build it again"
    assert tokens.startswith("the index was built with document_tokens 300")
    assert weights.startswith("the index was built with weights '")
    assert method.startswith("the index was built with method 'plaid', the system asks for 'uncompressed'")
    assert empty.startswith("the index has no readable built-with.json")
    assert foreign.startswith("the index was built with engine None")
    assert lacking == "the index is damaged: ids.bin and ids.npy cannot be read"
    assert version.startswith("the index was built with engine 'colbert-ai 0.2.1'")
    assert fewer == "the index has 30 documents and 30 ids, it was made of 3; build it again"
    assert ids == "the index has 30 documents and 1 ids, it was made of 30; build it again"
    assert "'median'" in median and "nbits is 3" in three and "'some'" in some
    assert bits == "bits is 17, must be 1 to 16" and scored == "scored is 0, must be at least 1"
    assert "1 GPUs" in gpu and "no CUDA device" in gpu
    assert none == "the corpus is empty"


def test_unused_and_too_long_parameters_are_refused(colbert: Inside) -> None:
    lines = """
for params in (
    {**PLAID, "nbit": 1},
    {**PLAID, "candidates": "all"},
    {**UNCOMPRESSED, "ncells": 1},
    {name: value for name, value in PLAID.items() if name != "ndocs"},
):
    refused(engine, params)
texts = corpus(given["documents"])
for change in ({"document_tokens": 513}, {"query_tokens": 513}):
    for params in (PLAID, UNCOMPRESSED):
        refused(engine({**params, **change}).build, texts, folder(str(time.time())), lambda _: None)
made = built({**PLAID, "document_tokens": 512}, given["documents"])
refused(engine({**PLAID, "document_tokens": 512, "query_tokens": 513}).load, made)
say(len(loaded({**PLAID, "document_tokens": 512}, made).search("ice", 1)))
"""
    long = {"_id": "long", "title": "", "text": "ice " * 2000}
    typo, all_of_them, cells, missing, *too_long, query, found = colbert(lines, documents=[long, *documents(30)])
    assert typo.startswith("unknown parameter 'nbit'; the method plaid reads batch_size, centroid_score_threshold, ")
    assert "'candidates'" in all_of_them and "'ncells'; the method uncompressed reads" in cells
    assert missing == "the parameter 'ndocs' is missing; the method plaid reads it"
    assert too_long[:2] == ["document_tokens is 513, the transformer of tiny reads at most 512"] * 2
    assert (
        too_long[2:] == ["query_tokens is 513, the transformer of tiny reads at most 512"] * 2 and query == too_long[2]
    )
    assert found == 1


@pytest.mark.parametrize("method", drawn("odd documents", METHODS, 2))
def test_odd_documents_and_queries_are_answered(colbert: Inside, method: str) -> None:
    odd = [
        *DOCUMENTS,
        {"_id": "empty", "title": "", "text": ""},
        {"_id": "an id with spaces", "title": "", "text": "ice " * 100_000},
        {"_id": "signs", "title": "", "text": "?!... \U0001f600"},
    ]
    lines = """
params = given[given["method"]]
ready = loaded(params, built(params, given["documents"]))
for query in ("", "the of and", "\\U0001f600 \\U0001f600", "?!", "ice " * 50_000, "ice"):
    say(hits(ready.search(query, 20)))
say(hits(loaded(params, built(params, given["documents"][4:5], "one")).search("ice", 5)))
"""
    *answers, one = colbert(lines, method=method, documents=odd)
    assert answers[-1][0][0] in ("an id with spaces", "glacier"), "they speak of ice"
    ids = {document["_id"] for document in odd}
    for answer in answers:
        found = {doc_id for doc_id, _ in answer}
        # PLAID's candidates have a token in the nearest cell of one of the query's.
        assert found and found <= ids and (found == ids or method != "uncompressed")
        scores = [score for _, score in answer]
        assert scores == sorted(scores, reverse=True) and all(0 < score < 32.001 for score in scores)
    assert [doc_id for doc_id, _ in one] == ["empty"]


def test_missing_extension_is_reported(colbert: Inside) -> None:
    lines = """
from engine import cpp_extensions
cpp_extensions._ON_CPU = Path("/index/extensions")
cpp_extensions.serve()
refused(cpp_extensions.load, "filter_pids_cpp", ["/opt/colbert/packages/colbert/search/filter_pids.cpp"])
"""
    (said,) = colbert(lines)
    assert said.startswith("the engine's C++ extensions are not there and cannot be compiled")
    assert said.endswith("or run this system in its image")
