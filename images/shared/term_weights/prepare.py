"""Make checkpoints ready: ``python3 -m term_weights.prepare ASSETS SYSTEM_JSON``; see ``encoder.prepare``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from encoder import prepare
from encoder.errors import BadCheckpoint

from term_weights import expansion, methods


def main(arguments: list[str]) -> int:
    """Encoders as ``encoder.prepare`` does it, and the writer of queries; one line and 1 when something is wrong."""
    place, described = arguments
    try:
        told = json.loads(Path(described).read_text(encoding="utf-8"))
        params = {**told["build_params"], **told["search_params"]}
        methods.named(params, texts=True)
        prepare.prepare(Path(place), params)
        methods.check_vocabularies(Path(place), params)
        expander = str(params.get("expansion_model", ""))
        if expander:
            if not (Path(place) / expander).is_dir():
                raise BadCheckpoint(f"{expander}: there is no such folder among the assets")
            expansion.prepare(Path(place) / expander)
    except (ValueError, OSError) as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
