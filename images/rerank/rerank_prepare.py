"""Make a reranker's checkpoint ready: ``python3 -m rerank_prepare ASSETS SYSTEM_JSON``; see ``encoder.prepare``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import parameters
from encoder import prepare
from encoder.backends import FILES
from encoder.roles import Role


def make_ready(assets: Path, given: dict[str, Any]) -> None:
    """Make the checkpoint of a system ready, in place.

    Args:
        assets: folder that holds the checkpoint's folder.
        given: the system's parameters, as far as ``prepare_params`` names them; a swept one has all its values.

    Raises:
        BadCheckpoint: the checkpoint is not what the parameters say.
        ValueError: a parameter is wrong.
    """
    lengths = given.get("document_tokens")
    if isinstance(lengths, list):  # no file depends on them; the longest has to be possible
        given = {**given, "document_tokens": max(lengths)}
    params = parameters.complete(given)
    folder = assets / params["model"]
    if params["aggregation"] in parameters.WINDOW_SCORES:
        asked = Role("query", folder.name, params["head"], params["backend"], None, {})
        prepare.prepare_folder(folder, [asked])
        return
    from document_graph import DocumentGraph, read_head
    from safetensors.torch import save_file

    asked = Role("query", folder.name, params["aggregation"], params["backend"], None, params)
    exported = bool(FILES.get(params["backend"]))
    head = read_head(folder, params) if exported and folder.is_dir() else None
    prepare.prepare_folder(folder, [asked], DocumentGraph)
    if head is not None:
        # The transformer is in the graph; the head's tensors are all that is left to read.
        save_file(head.state_dict(), folder / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    sys.exit(prepare.main(sys.argv[1:], make_ready))
