"""Tests of inputs that the learned sparse retrieval engine refuses."""

from __future__ import annotations

import pytest

from tests.images.impact import BUILT, Ask

pytestmark = pytest.mark.docker

# Tampers with the small checkpoints, makes them ready as an image's build does, says what came of it.
_ATTEMPT = """
import os, shutil, sys
import term_weights.prepare, encoder.prepare, encoder.graph, torch, transformers
def attempt(tamper, of=params, **changes):
    place = Path("/tmp/assets")
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree("/job/models", place)
    tamper(place)
    told = Path("/tmp/system.json")
    told.write_text(json.dumps({"build_params": {**of, **changes}, "search_params": {}}))
    child = os.fork()  # each in a process of its own, as at an image's build, but with the libraries read once
    if not child:
        sys.stderr = open("/tmp/said", "w")
        code = encoder.prepare.main([str(place), str(told)], term_weights.prepare.make_ready)
        sys.stderr.flush()
        os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    say([code, Path("/tmp/said").read_text().splitlines()])
def cut(path):
    path.write_bytes(path.read_bytes()[:20_000])
def without(token, folder):
    path = folder / "tokenizer.json"
    told = json.loads(path.read_text())
    told["added_tokens"] = [each for each in told["added_tokens"] if each["content"] != token]
    told["model"]["vocab"] = [each for each in told["model"]["vocab"] if each[0] != token]
    path.write_text(json.dumps(told))
"""


def test_an_index_of_another_system_is_refused(ask: Ask) -> None:
    lines = """
import shutil
other = Path("/tmp/assets")
shutil.copytree(assets, other, symlinks=True)
noted = other / "bt-splade-l-document" / "encoder.json"
noted.write_text(json.dumps({**json.loads(noted.read_text()), "checkpoint_sha256": "0" * 64}))
for make in (lambda: engine(quantisation=50), lambda: engine(document_tokens=128),
             lambda: adapter.ENGINE(params, Envelope("test", 1, 1 << 30), other)):
    say(refused(lambda: make().load(index)))
plain = {"method": "doct5query", "expansion_model": "doct5query", "language": "xx"}
changes = ({"method": "spalde"}, {"quantisation": 0}, {"head": "mean"}, {"language": "zh"})
for wrong in (*({**params, **each} for each in changes), plain):
    say(refused(lambda: adapter.ENGINE(wrong, Envelope("test", 1, 1 << 30), other)))
"""
    impacts, tokens, weights, *unknown = ask("bt-splade-l", BUILT + lines)
    assert impacts == "the index was built with quantisation 100, the system asks for 50; build it again"
    assert tokens == "the index was built with document_tokens 256, the system asks for 128; build it again"
    assert weights.startswith("the index was built with bt-splade-l-document_sha256 ")
    assert [each[:20] for each in unknown] == [
        "method is 'spalde', ",
        "quantisation is 0, m",
        "head is 'mean'; the ",
        "unknown parameter 'l",
        "language is 'xx', mu",
    ]


def test_bad_encoders_and_query_generators_are_refused_in_one_line(ask: Ask) -> None:
    """What spoils any encoder is tested in test_encoder_checks.py."""
    lines = """
query, document = "bt-splade-l-query", "bt-splade-l-document"
attempt(lambda place: None)
attempt(lambda place: cut(place / query / "pytorch_model.bin"))
attempt(lambda place: None, document_tokens=600)
weigh = {**params, "method": "unicoil", "head": "term_weight", "document_model": "unicoil", "query_model": "unicoil"}
attempt(lambda place: None, weigh)
attempt(lambda place: shutil.copy(place / "deepct" / "config.json", place / "unicoil") and shutil.copy(
    place / query / "pytorch_model.bin", place / "unicoil"), weigh)
write = {"method": "doct5query", "expansion_model": "doct5query"}
attempt(lambda place: None, write)
attempt(lambda place: cut(place / "doct5query" / "pytorch_model.bin"), write)
attempt(lambda place: shutil.copy(place / "deepct" / "config.json", place / "doct5query"), write)
attempt(lambda place: without("</s>", place / "doct5query"), write)
"""
    starts = [
        "",
        "bt-splade-l-query: pytorch_model.bin is damaged or cut short",
        "bt-splade-l-document: document_tokens is 600",
        "",
        "unicoil: the weights",
        "",
        "doct5query: pytorch_model.bin is damaged or cut short",
        "doct5query: config.json says model_type 'bert'",
        "doct5query: ",
    ]
    for (code, complaint), start in zip(ask("bt-splade-l", _ATTEMPT + lines), starts, strict=True):
        assert (complaint or [""])[-1].startswith(start), complaint
        assert code == (1 if start else 0)
