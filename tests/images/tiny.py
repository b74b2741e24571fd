"""Systems like the shipped ones, with small checkpoints of the same format, as a user's own."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker

from harness import catalog
from harness.images import making
from tests.images.conftest import CACHE


def make_checkpoints(engine: docker.DockerClient, name: str, asked: list[dict[str, Any]], folder: Path) -> None:
    """Run ``checkpoints/sparse.py`` in the engine's image; ``folder`` then holds what it was asked for."""
    image = making.ensure_engine(engine, catalog.system(name), cache=CACHE, report=print)
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o777)
    (folder / "asked.json").write_text(json.dumps(asked))
    engine.containers.run(
        image.digest,
        ["/scripts/sparse.py", "/made/asked.json", "/made"],
        entrypoint=["python3"],
        remove=True,
        network_mode="none",
        user="65532:65532",
        tmpfs={"/tmp": "size=64m"},
        volumes={
            str(catalog.data_root() / "checkpoints"): {"bind": "/scripts", "mode": "ro"},
            str(folder): {"bind": "/made", "mode": "rw"},
        },
    )
    (folder / "asked.json").unlink()


def own_system(
    name: str, like: str, own: Path, models: Path, edit: Callable[[str], str] = lambda text: text, **params: Any
) -> None:
    """Write ``own/<engine>/systems/<name>.toml``: the shipped system ``like``, its files those of ``models``.

    Args:
        edit: changes the TOML further.
        params: values of parameters that the shipped system has.
    """
    system = catalog.systems(catalog.images_dir())[like]
    source = system.engine_dir / "systems" / f"{like}.toml"
    text = source.read_text(encoding="utf-8")
    for key, value in params.items():
        text, found = re.subn(rf"^{key} = [^#\n]*", f"{key} = {json.dumps(value)} ", text, flags=re.MULTILINE)
        assert found == 1, f"{like} has no parameter {key}"
    head = text[: text.index("[[assets]]")]
    tables = ""
    for asset in system.system_assets:
        tables += f'[[assets]]\nfolder = "{asset.folder}"\nlicence = "Apache-2.0"\n\n[assets.sha256]\n'
        for file in asset.names:
            checksum = hashlib.sha256((models / asset.folder / file).read_bytes()).hexdigest()
            tables += f'"{file}" = "{checksum}"\n'
        tables += "\n"
    target = own / system.engine / "systems" / f"{name}.toml"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(edit('stand_in = "a small one with random weights"\n' + head + tables), encoding="utf-8")
