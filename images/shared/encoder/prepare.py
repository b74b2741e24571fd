"""Make a system's checkpoints ready when its image is built: ``python3 -m encoder.prepare ASSETS SYSTEM_JSON``.

Each checkpoint is loaded once, strictly; the tokeniser is saved in the one form that needs no ``transformers``; the
graph is written for the backends that the system asks for; and what these do not read is dropped.  What is wrong
is said in one line, with exit code 1.  Exit code 3 asks for the whole engine: PyTorch has to read the checkpoint, and
this image has none.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from encoder import bert, tokens
from encoder.backends import BACKENDS, FILES
from encoder.config import read_config
from encoder.errors import BadCheckpoint
from encoder.roles import Role, roles

FORMAT = 3

_WEIGHTS = ("model.safetensors", "pytorch_model.bin")

# Packages that only an engine's whole image has.
_WHOLE_ENGINE = ("torch", "transformers")

# The sides of DPR's encoders, by what they encode here.
_DPR_SIDES = {"query": "question", "document": "context"}


def main(arguments: list[str], make_ready: Callable[[Path, dict[str, Any]], None] | None = None) -> int:
    """See the module.

    Args:
        arguments: of the command line.
        make_ready: what is done with the folder of assets and the system's parameters; :func:`prepare` if not given.
    """
    try:
        place, described = arguments
    except ValueError:
        print("usage: python3 -m encoder.prepare ASSETS SYSTEM_JSON", file=sys.stderr)
        return 1
    try:
        told = json.loads(Path(described).read_text(encoding="utf-8"))
        (make_ready or prepare)(Path(place), {**told["build_params"], **told["search_params"]})
    except (ValueError, OSError) as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        if error.name not in _WHOLE_ENGINE:
            raise
        print(f"this checkpoint needs {error.name}, which the lean image lacks", file=sys.stderr)
        return 3
    return 0


def prepare(assets: Path, params: dict[str, Any]) -> None:
    """Make all encoders of a system ready, in place.

    Args:
        assets: folder that holds a folder for each checkpoint.
        params: the system's parameters; see :mod:`encoder.roles`.  A list holds the values that a suite sweeps.

    Raises:
        BadCheckpoint: a checkpoint is not what the parameters say.
        ValueError: a parameter is wrong.
    """
    by_folder: dict[str, list[Role]] = {}
    lists = [value if isinstance(value, list) else [value] for value in params.values()]
    for values in itertools.product(*lists):
        for role in roles(dict(zip(params, values, strict=True))):
            by_folder.setdefault(role.folder, []).append(role)
    for name, sharing in by_folder.items():
        prepare_folder(assets / name, sharing)


def checkpoint_sha256(folder: Path) -> str:
    """Hash of what decides a text's vector; of a prepared folder as it was noted, before anything was dropped.

    Raises:
        BadCheckpoint: there are no weights, no ``config.json`` or no tokeniser.
    """
    noted = folder / "encoder.json"
    if noted.is_file():
        return str(json.loads(noted.read_text(encoding="utf-8"))["checkpoint_sha256"])
    read_config(folder)
    return files_sha256(folder, tokens.read(folder))


def files_sha256(folder: Path, tokeniser: Tokenizer, parts: Sequence[str] = ()) -> str:
    """Hash of the weights and ``config.json`` as they were published, and of the tokeniser as it is applied.

    The same weights under another vocabulary, or another epsilon, are another encoder.

    Raises:
        BadCheckpoint: there are no weights.
    """
    weights = next((name for name in _WEIGHTS if (folder / name).is_file()), None)
    if weights is None:
        raise BadCheckpoint(f"{folder.name}: no weights ({' or '.join(_WEIGHTS)})")
    tokeniser.no_padding()
    tokeniser.no_truncation()
    whole = hashlib.sha256(tokeniser.to_str().encode("utf-8", "surrogatepass"))
    for name in ("config.json", weights, *(f"{part}/model.safetensors" for part in parts)):
        with (folder / name).open("rb") as file:
            whole.update(hashlib.file_digest(file, "sha256").digest())
    return whole.hexdigest()


def prepare_folder(folder: Path, sharing: list[Role], load: Callable[..., Any] | None = None) -> None:
    """Make one checkpoint ready, in place, for the roles that share it.

    Args:
        folder: of the checkpoint.
        sharing: its roles; they have one head.
        load: reads the checkpoint strictly: folder, head, parameters; if not given :mod:`encoder.bert` for backends
            that read an export, where it can, else :class:`encoder.graph.Graph`.

    Raises:
        BadCheckpoint: the checkpoint is not what the roles say.
    """
    if not folder.is_dir():
        raise BadCheckpoint(
            f"{folder.name}: there is no such folder among the assets; they and the parameters disagree"
        )
    heads = sorted({role.head for role in sharing})
    if len(heads) > 1:
        raise BadCheckpoint(f"{folder.name}: two heads over one checkpoint, {' and '.join(heads)}; name one")
    backends = {role.backend for role in sharing}
    for backend in sorted(backends - set(BACKENDS)):
        raise BadCheckpoint(f"no backend {backend!r}; there are {', '.join(BACKENDS)}")
    graph: Any = None
    if load is None and all(FILES[backend] for backend in backends):
        graph = bert.read(folder, heads[0], sharing[0].params)
    if graph is None:
        from encoder.graph import Graph, check_numbers

        graph = (load or Graph)(folder, heads[0], sharing[0].params)
        check_numbers(graph, folder.name)
    for role in sharing:
        _check_role(role, graph)
    tokeniser = tokens.read(folder)
    tokens.Tokens(tokeniser, graph.declared.vocabulary, name=folder.name)
    sha256 = files_sha256(folder, tokeniser, graph.parts)
    from encoder.export import export

    export(graph, folder, backends)
    # Under another name first: an asset may be a read-only file, or one that others link to.
    fresh = folder / "tokenizer.json.new"
    fresh.write_text(tokeniser.to_str(), encoding="utf-8")
    fresh.replace(folder / "tokenizer.json")
    noted = {
        "format": FORMAT,
        "head": heads[0],
        "side": graph.side,
        "backends": sorted(backends),
        "parameters": sum(math.prod(each.shape) for each in graph.parameters()),
        "checkpoint_sha256": sha256,
    }
    (folder / "encoder.json").write_text(json.dumps(noted, indent=2) + "\n", encoding="utf-8")
    _drop_unread(folder, backends, graph.parts)


def _check_role(role: Role, graph: Any) -> None:
    """Refuse the wrong one of DPR's encoders, and more tokens than the transformer has positions."""
    if graph.side and graph.side != _DPR_SIDES[role.side]:
        raise BadCheckpoint(
            f"{role.folder}: this is DPR's {graph.side} encoder, named for {role.side} texts; swap them"
        )
    most = graph.declared.max_tokens
    if role.max_tokens is not None and not 2 < role.max_tokens <= most:
        raise BadCheckpoint(
            f"{role.folder}: {role.side}_tokens is {role.max_tokens}; the transformer has {most} positions, "
            "and two go to special tokens"
        )


def _drop_unread(folder: Path, backends: Collection[str], parts: Sequence[str]) -> None:
    """Delete the files that no backend reads, and the folders that are then empty."""
    kept = {"config.json", "tokenizer.json", "encoder.json", *(FILES[backend] for backend in backends)}
    if any(not FILES[backend] for backend in backends):
        kept.add(next(name for name in _WEIGHTS if (folder / name).is_file()))
        kept |= {f"{part}/model.safetensors" for part in parts}
    if FILES["openvino"] in kept:
        kept.add(Path(FILES["openvino"]).with_suffix(".bin").name)
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir():
            if not any(path.iterdir()):
                path.rmdir()
        elif path.relative_to(folder).as_posix() not in kept:
            path.unlink()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
