"""Make a system's checkpoints ready: ``python3 -m impact_prepare ASSETS SYSTEM_JSON``; see ``encoder.prepare``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import impact_expansion
import impact_methods
from encoder import prepare
from encoder.errors import BadCheckpoint


def main(arguments: list[str]) -> int:
    """Encoders as ``encoder.prepare`` does it, and the writer of queries; one line and 1 when something is wrong."""
    place, described = arguments
    try:
        told = json.loads(Path(described).read_text(encoding="utf-8"))
        params = {**told["build_params"], **told["search_params"]}
        impact_methods.check(params)
        prepare.prepare(Path(place), params)
        _check_vocabularies(Path(place), params)
        expander = str(params.get("expansion_model", ""))
        if expander:
            if not (Path(place) / expander).is_dir():
                raise BadCheckpoint(f"{expander}: there is no such folder among the assets")
            impact_expansion.prepare(Path(place) / expander)
    except (ValueError, OSError) as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 1
    return 0


def _check_vocabularies(place: Path, params: dict[str, Any]) -> None:
    """Refuse encoders whose terms are not the same: their texts would meet by chance alone.

    Raises:
        BadCheckpoint: the vocabularies of the two sides differ.
    """
    folders = {impact_methods.document_model(params), str(params.get("query_model", params.get("model", "")))}
    read = [
        json.loads((place / each / "tokenizer.json").read_text(encoding="utf-8")) for each in sorted(folders - {""})
    ]
    if len(read) == 2 and read[0]["model"]["vocab"] != read[1]["model"]["vocab"]:
        raise BadCheckpoint(
            f"{' and '.join(sorted(folders))}: the encoders of documents and of queries have different vocabularies,"
            " so their terms cannot meet; take two that belong together"
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
