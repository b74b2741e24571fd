"""CEDR, PARADE and LATEIR against their formulas, restated in float64 (``rerank_heads``)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.images.conftest import Probe

pytestmark = pytest.mark.docker

ROOT = Path(__file__).resolve().parents[2]
# A cosine at the border of two bins falls into either, by rounding: such pairs are left out, and are few.
MOST_LEFT_OUT = 0.15


@pytest.fixture
def loops(probe: Probe, tmp_path: Path) -> Callable[[str], list[Any]]:
    """Run lines in an image with PyTorch beside the heads and their restatement."""
    job = tmp_path / "job"
    job.mkdir()
    shutil.copytree(ROOT / "images" / "rerank" / "heads", job / "heads", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "tests" / "images" / "rerank_heads.py", job)
    before = "sys.path.insert(0, '/job')\nimport torch\nimport rerank_heads as loops\nfrom rerank_heads import *\n"
    return lambda lines: probe("minilm", before + lines)


def test_heads_equal_their_formulas_alone_and_in_batches(loops: Callable[[str], list[Any]]) -> None:
    answers = loops("for name in NAMES:\n    for pad in ('real', 's3'):\n        say([name, pad, compare(name, pad)])")
    assert len(answers) == 20
    pairs: dict[str, int] = {}
    for name, pad, found in answers:
        assert found["difference"] <= 1e-5, (name, pad)
        assert found["batches"] <= 1e-5, (name, pad)
        assert found["spread"] > 1e-3, "scores that are all alike prove nothing"
        assert found["left_out"] <= (MOST_LEFT_OUT * found["pairs"] if name == "cedr-drmm" else 0), (name, pad)
        pairs[name] = pairs.get(name, 0) + found["pairs"]
    assert min(pairs.values()) >= 200


def test_each_head_refuses_wrong_tensors_by_name(loops: Callable[[str], list[Any]]) -> None:
    lines = """
def refusal(name, tensors):
    try:
        make(name, "real", tensors)
    except BadCheckpoint as error:
        return str(error)
    return ""

for name in NAMES:
    own = shapes(name)
    for tensor in own:
        lacking = Tensors(own)
        del lacking[tensor]
        wrong = Tensors({**own, tensor: torch.zeros(7, 7)})
        say([name, tensor, refusal(name, lacking), refusal(name, wrong)])
    start = next(iter(own)).partition(".")[0]
    say([name, f"{start}.stranger", refusal(name, Tensors({**own, f"{start}.stranger": torch.zeros(1)})), ""])
    assert refusal(name, Tensors({**own, "bert.other": torch.zeros(1)})) == "", "those are the transformer's"
"""
    answers = loops(lines)
    assert len(answers) > 200
    for name, tensor, *messages in answers:
        for message in messages[: 1 if tensor.endswith("stranger") else 2]:
            assert tensor in message, (name, tensor)


def test_switches_of_padding_change_scores_of_short_documents(loops: Callable[[str], list[Any]]) -> None:
    lines = """
for name in NAMES:
    tensors, scores = Shapes(shapes(name)), []
    for pad, padding in (("real", "masked"), ("s3", "masked"), ("s3", "s3")):
        head = make(name, pad, tensors, padding)
        pairs = Pairs((13,), 7, head.split, pad, apart=head.apart, seed=1)
        scores.append(float(head(pairs.batch([0]))[0]))
    say([name, scores])
try:
    make("cedr-knrm", "real", Tensors(shapes("cedr-knrm")), "s3")
except BadCheckpoint as error:
    say(["refused", str(error)])
"""
    *scores, (_, refused) = loops(lines)
    for name, (real, s3, interaction) in scores:
        assert abs(real - s3) > 1e-3, name
        assert (abs(s3 - interaction) > 1e-3) == name.startswith("cedr"), name
    assert "pad_windows = s3" in refused
