"""Converted checkpoints of RocketQA give the vectors and scores of its own forward pass."""

from __future__ import annotations

import json
from pathlib import Path

import numpy
import pytest

from checkpoints import rocketqa
from tests.checkpoints.ernie import ernie, first_token, write_source
from tests.images.conftest import Probe

pytestmark = pytest.mark.docker

PAIRS = [("今天天气", "天气很好吗"), ("明天", "今天雨"), ("雨吗", "很好很好今天气")]
LINES = """
from encoder.model import Model
for name, head in (("dual-passage", "cls"), ("cross", "classifier"), ("joint", "linear")):
    model = Model.load(Path("/job/models") / name, head, params={"segments": True})
    say(model([tuple(pair) for pair in json.loads(Path("/job/pairs.json").read_text())], 24).tolist())
model = Model.load(Path("/job/models/dual-query"), "cls")
say(model(["今天天气"], 24).tolist())
"""


def test_converted_encoders_equal_a_restated_ernie(probe: Probe, tmp_path: Path) -> None:
    states = {
        "dual": ernie("query_", 1, "") | ernie("titlepara_", 2, ""),
        "cross": ernie("", 3, "classifier"),
        "joint": ernie("qtp_", 4, "linear"),
    }
    models = tmp_path / "job" / "models"
    for name, state in states.items():
        source = tmp_path / name
        source.mkdir()
        rocketqa.convert(*write_source(source, state), models, name)
    (tmp_path / "job" / "pairs.json").write_text(json.dumps(PAIRS))
    passages, crossed, joint, queries = (numpy.array(said) for said in probe("minilm-torch", LINES))
    dual, cross, together = states["dual"], states["cross"], states["joint"]
    for (query, passage), vector, score, single in zip(PAIRS, passages, crossed, joint, strict=True):
        assert vector == pytest.approx(first_token(dual, "titlepara_", query, passage), abs=1e-5)
        pooled = numpy.tanh(first_token(cross, "", query, passage) @ cross["pooled_fc.w_0"] + cross["pooled_fc.b_0"])
        logits = pooled @ cross["_cls_out_w"] + cross["_cls_out_b"]
        assert score[0] == pytest.approx(logits[1] - logits[0], abs=1e-5)
        first = first_token(together, "qtp_", query, passage)
        assert single[0] == pytest.approx(
            (first @ together["qtp__cls_out_w"] + together["qtp__cls_out_b"])[0], abs=1e-5
        )
    assert queries[0] == pytest.approx(first_token(dual, "query_", "今天天气"), abs=1e-5)
