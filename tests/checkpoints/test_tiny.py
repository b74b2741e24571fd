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
    assert [kind for _, kind in recipes("bt-splade-l").values()] == ["splade", "splade-distilbert"]
    assert recipes("sbert")["sbert"] == ("dense", "distilbert")
    assert recipes("e5-base-4k") == {"e5-base-4k": ("dense", "bert-4k")}
    assert recipes("multilingual-e5-small") == {"multilingual-e5-small": ("dense", "bert-multilingual")}
    assert recipes("deberta-maxp") == {"deberta-maxp": ("rerank", "deberta-linear")}
    assert recipes("deberta-parade-attn") == {"deberta-parade-attn": ("rerank_heads", "parade-attn-deberta")}
    assert recipes("electra-firstp") == {"electra-firstp": ("rerank", "electra-linear")}
    assert recipes("electra-parade-attn") == {"electra-parade-attn": ("rerank_heads", "parade-attn-electra")}
    assert [*recipes("electra-parade-transf-rand-l2").values()] == [
        ("rerank_heads", "parade-transformer-rand-l2-electra")
    ]
    assert [*recipes("parade-transf-rand-l2").values()] == [("rerank_heads", "parade-transformer-rand-l2")]
    assert [*recipes("parade-transf-pretr-l6-separators").values()] == [
        ("rerank_heads", "parade-transformer-pretr-l6-separators")
    ]
    assert recipes("unicoil") == {"unicoil": ("sparse", "unicoil"), "doct5query": ("sparse", "doct5query")}


@pytest.mark.slow
def test_unknown_method_is_reported() -> None:
    system = catalog.system("bt-splade-l")
    other = system.model_copy(update={"build_params": {**system.build_params, "method": "novel"}})
    with pytest.raises(UnknownName, match="bt-splade-l/bt-splade-l-query"):
        tiny.recipe(other, "bt-splade-l-query")
