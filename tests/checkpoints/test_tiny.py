"""Tests of tiny checkpoints, whose format follows from the system's parameters."""

from __future__ import annotations

import pytest

from checkpoints import dense, llm, rerank, rerank_heads, rerank_long, sparse, tiny
from harness.errors import UnknownName
from harness.launch.images import catalog

pytestmark = pytest.mark.slow


def recipes(name: str) -> dict[str, tuple[str, str]]:
    system = catalog.system(name)
    return {asset.folder: tiny.recipe(system, asset.folder) for asset in system.assets}


@pytest.mark.slow
def test_every_asset_of_every_shipped_system_can_be_made() -> None:
    for system in catalog.systems(catalog.images_dir()).values():
        for module, kind in recipes(system.name).values():
            known = {
                "dense": dense.KINDS,
                "sparse": sparse.KINDS,
                "rerank": rerank.KINDS,
                "rerank_heads": rerank_heads.KINDS,
                "rerank_long": rerank_long.KINDS,
                "llm": llm.KINDS,
                "colbert": ("",),
            }
            assert kind in known[module]


@pytest.mark.slow
def test_encoders_of_different_architectures_differ() -> None:
    assert recipes("dpr") == {"dpr-question": ("dense", "dpr-question"), "dpr-context": ("dense", "dpr-context")}
    assert recipes("unicoil") == {"unicoil": ("sparse", "unicoil"), "doct5query": ("sparse", "doct5query")}
    assert [kind for _, kind in recipes("bt-splade-l").values()] == ["splade", "splade-distilbert"]
    kinds = {
        "sbert": "distilbert",
        "e5-base-4k": "bert-4k",
        "multilingual-e5-small": "bert-multilingual",
        "deberta-maxp": "deberta-linear",
        "deberta-parade-attn": "parade-attn-deberta",
        "electra-firstp": "electra-linear",
        "electra-parade-transf-rand-l2": "parade-transformer-rand-l2-electra",
        "parade-transf-pretr-l6-separators": "parade-transformer-pretr-l6-separators",
    }
    assert {name: kind for name in kinds for _, kind in recipes(name).values()} == kinds


@pytest.mark.slow
def test_unknown_method_is_reported() -> None:
    system = catalog.system("bt-splade-l")
    other = system.model_copy(update={"build_params": {**system.build_params, "method": "novel"}})
    with pytest.raises(UnknownName, match="bt-splade-l/bt-splade-l-query"):
        tiny.recipe(other, "bt-splade-l-query")
