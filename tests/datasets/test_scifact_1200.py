"""The collection of the demo is a part of SciFact that anyone can draw again."""

import gzip
import json
import random
from pathlib import Path

import pytest

from harness.config import data_root

DOCUMENTS = 1200


def corpus(folder: Path) -> dict[str, str]:
    with gzip.open(folder / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        return {json.loads(line)["_id"]: line for line in lines}


@pytest.mark.slow
def test_part_has_all_judged_abstracts_and_a_random_sample_of_the_others() -> None:
    whole, part = data_root() / "datasets" / "scifact", data_root() / "datasets" / "scifact-1200"
    everything = corpus(whole)
    judged = {line.split()[2] for line in (whole / "qrels.trec").read_text().splitlines()}
    others = [name for name in everything if name not in judged]
    kept = judged | set(random.Random("scifact-1200").sample(others, DOCUMENTS - len(judged)))
    assert corpus(part) == {name: line for name, line in everything.items() if name in kept}
    for name in ("queries.jsonl", "qrels.trec", "dataset.toml"):
        assert (part / name).read_bytes() == (whole / name).read_bytes()
