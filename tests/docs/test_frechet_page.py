"""The stored figures of docs/reference/frechet-scifact.md."""

from __future__ import annotations

from scripts.docs import frechet_page


def test_shuffled_run_reads_back() -> None:
    for sample in frechet_page.stored().values():
        distances = {system["system"]: system["distances"] for system in sample["systems"]}
        for one, other in zip(distances["bm25"], distances["bm25-shuffled"], strict=True):
            near = abs(one["figure"]["value"] / other["figure"]["value"] - 1) < 0.01  # three queries are left out
            assert near is not one["unlabelled"], "under URR it has no judged documents to lose"
