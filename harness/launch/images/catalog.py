"""The catalogue of engines and systems, read from ``images/<engine>/engine.toml`` and ``systems/<system>.toml``."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from harness.config import NAME_PATTERN, ConfigModel, data_root, read_toml, validate
from harness.errors import FileError, UnknownName, UsageError, did_you_mean
from harness.launch.images.platforms import AMD64, debian
from harness.records import Scalar

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
# The two tables of a system's parameters.
PARAMETERS = ("build_params", "search_params")


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
    package_sha256: Sha256 | None = Field(default=None, description="of the distribution's file: pip checks it first")
    package_folder: str | None = Field(default=None, description="where in the distribution the files lie")
    sha256: dict[str, Sha256] = Field(default={}, description="file name -> sha256")
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


def checksums(assets: tuple[Asset, ...]) -> dict[str, str]:
    """Map the pinned files of assets, by their path, to their sha256."""
    return {f"{asset.folder}/{name}": sha256 for asset in assets for name, sha256 in asset.sha256.items()}


class NotFor(ConfigModel):
    """A platform that an engine has no image for, with the reason, so that no build has to fail first."""

    platform: Literal["linux/amd64", "linux/arm64"]
    accelerator: Literal["cuda"] | None = Field(
        default=None, description="only the image for GPUs is meant; without this key every image of the engine"
    )
    reason: str = Field(min_length=1, description="why, in a few words: users read it when they ask for that image")


class EngineSettings(ConfigModel):
    """The settings of ``engine.toml`` that each system of the engine has."""

    description: str = Field(description="one line for people")
    extra_indexes: tuple[str, ...] = Field(
        default=(), description="package indexes that are asked as well when the plain download of the lock fails"
    )
    prepare: str | None = Field(
        default=None,
        pattern=r"^[a-z_][a-z0-9_.]*$",
        description="module that makes a system's assets ready when its image is built (converts weights, checks them)",
    )
    prepare_params: tuple[str, ...] = Field(
        default=(), description="parameters of the system that `prepare` reads; they decide the image too"
    )
    lean_if: dict[str, tuple[Scalar, ...]] = Field(
        default={},
        description="parameters, and their values with which prepared files need fewer packages: the image is then made"
        ' from the Dockerfile\'s stage `lean` (build argument STAGE); a missing parameter counts as `""`',
    )
    lean_search_if: dict[str, tuple[Scalar, ...]] = Field(
        default={},
        description="parameters, and their values with which searches need fewer packages than builds: the index is"
        " then built in the system's image, and searched in `<system>-search`, made from the stage `lean`; with GPUs,"
        " one image does both",
    )
    toolchain: bool = Field(
        default=False, description="its Dockerfile compiles: gets a compiler image as the build argument TOOLCHAIN"
    )
    resumable_builds: bool = Field(
        default=False, description="a build that ended early goes on from what it left in the index folder"
    )
    scores: bool = Field(
        default=False, description="scores given documents, so that its systems can be the second of two stages"
    )
    two_stages: bool = Field(
        default=False, description="of its systems' components, the second scores what the first finds"
    )
    cuda: int = Field(
        default=12, ge=1, description="with GPUs: the release of CUDA whose packages it takes from shared folders"
    )
    not_for: tuple[NotFor, ...] = Field(
        default=(), description="platforms that it has no image for; it has one for every other"
    )
    languages: tuple[str, ...] = Field(
        default=(),
        description="codes of the languages that it has analysers for, its default first; a system whose file sets no"
        " `language` gets that of the dataset as a parameter of the build",
    )

    @model_validator(mode="after")
    def _lean_if_prepared(self) -> EngineSettings:
        for key, table in (("lean_if", self.lean_if), ("lean_search_if", self.lean_search_if)):
            if unread := sorted(table.keys() - set(self.prepare_params)):
                raise ValueError(f"{key}: {unread[0]} is not in prepare_params, which decide the image")
            if table and not self.prepare:
                raise ValueError(f"{key}: only files that `prepare` makes ready go into a lean image; name it")
        return self


LANGUAGE = "language"


class EngineFile(EngineSettings):
    """``images/<engine>/engine.toml``."""

    assets: tuple[Asset, ...] = Field(default=(), description="files that all systems of the engine share")
    shared: tuple[str, ...] = Field(
        default=(),
        description="code that engines share: folders of `images/shared/`, put into /opt/shared; the PyPI packages that"
        " a folder pins in its own `requirements.lock` come into the build as `packages/<folder>`, and the stages of"
        " its `stages.Dockerfile` before the engine's own",
    )

    @field_validator("assets")
    @classmethod
    def _all_pinned(cls, value: tuple[Asset, ...]) -> tuple[Asset, ...]:
        if any(asset.unpinned for asset in value):
            raise ValueError("what all systems of an engine share is pinned: give sha256, not files")
        return value


class SystemSettings(ConfigModel):
    """The settings of a system's file that hold for its components too."""

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
    with_gpus: dict[str, Scalar] = Field(
        default={},
        description="parameters that have another value with GPUs: those of the build where it has some, those of the"
        " search likewise; a value that a suite or a joining system sets stays",
    )
    assets: tuple[Asset, ...] = Field(default=(), description="files of this system alone: its weights")
    stand_in: str | None = Field(
        default=None,
        description="what the checkpoint is, where it is not the published one; tables mark the system",
    )


class SystemFile(SystemSettings):
    """``images/<engine>/systems/<system>.toml``."""

    components: tuple[str, ...] = Field(
        default=(),
        description="the two systems that this one joins in one envelope, for an engine that fuses rankings; their"
        " parameters are its own under `<component>.<name>`",
    )

    @model_validator(mode="after")
    def _with_gpus_known(self) -> SystemFile:
        if unknown := sorted(self.with_gpus.keys() - {*self.build_params, *self.search_params}):
            raise ValueError(f"with_gpus: {unknown[0]} is in neither build_params nor search_params; add it there")
        return self

    def pins(self, known: SystemFile) -> bool:
        """Check that this file differs from ``known`` only by pinning its unpinned weights."""
        if not any(asset.unpinned for asset in known.assets):
            return False
        pins = {"assets": {"__all__": {"revision", "sha256", "files"}}}
        return self.model_dump(exclude=pins) == known.model_dump(exclude=pins) and all(
            set(mine.names) == set(theirs.names) for mine, theirs in zip(self.assets, known.assets, strict=True)
        )


class System(SystemSettings, EngineSettings):
    """A system that can be measured: its engine's folder, parameters, assets and components.

    ``file`` declares it; ``platform`` is that of its image; launchers set theirs.  ``variant_of`` names the system
    whose image it has, with other parameters; ``swept`` are all values of those that ``prepare`` reads.
    ``search_only``: its image has only what searches need.
    """

    name: str
    file: Path
    engine: str
    engine_dir: Path
    engine_assets: tuple[Asset, ...]
    shared: tuple[Path, ...] = ()
    components: tuple[System, ...] = ()
    accelerator: Literal["cuda"] | None = None
    platform: str = AMD64
    variant_of: str | None = None
    swept: dict[str, tuple[Scalar, ...]] = Field(default={})
    search_only: bool = False

    @property
    def parts(self) -> tuple[System, ...]:
        """The system itself and its components."""
        return (self, *self.components)

    @property
    def lock(self) -> Path:
        """The package lock of its engine, for its platform or accelerator if there is one."""
        return self._lock(self.engine_dir)

    @property
    def shared_locks(self) -> dict[str, Path]:
        """The package locks of its shared code, by folder name; most shared folders have none."""
        return {folder.name: self._lock(folder) for folder in self.shared if (folder / "requirements.lock").is_file()}

    def _lock(self, folder: Path) -> Path:
        able = [f"requirements-{self.accelerator}{self.cuda}"] if self.accelerator else []
        names = [name for base in (*able, "requirements") for name in (f"{base}-{debian(self.platform)}", base)]
        locks = [folder / f"{name}.lock" for name in names]
        return next((lock for lock in locks if lock.is_file()), locks[-1])

    @property
    def image(self) -> str:
        """The name of its image; one for an accelerator or for searches alone, also a component's, has its own name."""
        able = next((part.accelerator for part in self.parts if part.accelerator), None)
        search = "search" if any(part.search_only for part in self.parts) else None
        return "-".join(each for each in (self.variant_of or self.name, able, search) if each)

    @property
    def engine_image(self) -> str:
        """The name of its engine's image."""
        return f"{self.engine}-{self.accelerator}" if self.accelerator else self.engine

    @property
    def lean(self) -> bool:
        """True if its image has only those packages of its engine that prepared files need."""
        return self.search_only or self._has_all(self.lean_if)

    def _has_all(self, able: Mapping[str, tuple[Scalar, ...]]) -> bool:
        """Return whether every value of these parameters is among those listed; False without prepared files."""
        if not (able and self.assets) or self.accelerator:
            return False
        values = {name: self.swept.get(name, (self.params.get(name, ""),)) for name in able}
        return all(set(values[name]) <= set(enough) for name, enough in able.items())

    def varied(self, name: str, params: Mapping[str, Scalar], grid: Mapping[str, tuple[Scalar, ...]]) -> System:
        """Return the system under another name, with other values of some parameters.

        Args:
            grid: all values of the parameters; one image is made ready for all of them.

        Raises:
            UsageError: it has no such parameter, or a component has it, whose index depends on it.
        """
        able = self.search_params if self.components else self.params
        for key in params:
            if key not in able:
                kind = "search parameter" if self.components else "parameter"
                hint = did_you_mean(key, able) or f"; it has {', '.join(able) or 'none'}"
                raise UsageError(f"[sweep.{self.name}]: {self.name} has no {kind} {key!r}{hint}")
        changed: dict[str, object] = {}
        for kind in PARAMETERS:
            own = getattr(self, kind)
            changed[kind] = {**own, **{key: value for key, value in params.items() if key in own}}
        swept = {key: values for key, values in grid.items() if key in self.prepare_params}
        return self.model_copy(
            update={
                **changed,
                "name": name,
                "variant_of": self.name,
                "swept": swept,
                "with_gpus": _without(self.with_gpus, params),
            }
        )

    def on(self, gpus: int, build_gpus: int | None = None) -> System:
        """Return the system as it is with GPUs: their packages, if its engine has them, and its parameters there.

        Args:
            gpus: of the envelope that it runs in.
            build_gpus: of the envelope that builds its index; ``gpus`` if not given.
        """
        counts = {"build_params": gpus if build_gpus is None else build_gpus, "search_params": gpus}
        changed: dict[str, object] = {}
        for kind, count in counts.items():
            if count and self.with_gpus:
                own = getattr(self, kind)
                changed[kind] = {**own, **{key: value for key, value in self.with_gpus.items() if key in own}}
        if gpus:
            lock = f"requirements-cuda{self.cuda}.lock"
            able = any((folder / lock).is_file() for folder in (self.engine_dir, *self.shared))
            changed["accelerator"] = "cuda" if able else None
        components = tuple(component.on(gpus, build_gpus) for component in self.components)
        return self.model_copy(update={**changed, "components": components})

    def searching(self) -> System:
        """Return the system as it searches a built index: without packages that its builds alone need."""
        components = tuple(component.searching() for component in self.components)
        search_only = self._has_all(self.lean_search_if) and not self._has_all(self.lean_if)
        return self.model_copy(update={"search_only": search_only, "components": components})

    def whole(self) -> System:
        """Return the system with all packages of its engine, for builds and searches alike."""
        components = tuple(component.whole() for component in self.components)
        return self.model_copy(update={"search_only": False, "components": components})

    def speaking(self, language: str | None) -> System:
        """Return the system with the analysers of a dataset's language, unless its file names another.

        Raises:
            UsageError: it, or a component, has no analyser for the language.
        """
        own = {LANGUAGE: language} if language and self._follows(language) else {}
        parts = tuple(part.speaking(language) for part in self.components)
        theirs = {
            f"{part.name}.{LANGUAGE}": part.build_params[LANGUAGE] for part in parts if LANGUAGE in part.build_params
        }
        return self.model_copy(update={"build_params": {**self.build_params, **own, **theirs}, "components": parts})

    def _follows(self, language: str) -> bool:
        """Return whether the dataset's language is a parameter here; the default needs none."""
        if not self.languages or LANGUAGE in self.build_params or language == self.languages[0]:
            return False
        if language not in self.languages:
            known = ", ".join(self.languages)
            raise UsageError(f"{self.name} has no analyser for {language!r}; it has {known}: set one in `languages`")
        return True

    def made_for(self, platform: str) -> System:
        """Return the system on a platform (``linux/arm64``)."""
        components = tuple(component.made_for(platform) for component in self.components)
        return self.model_copy(update={"platform": platform, "components": components})

    @property
    def lacking(self) -> str | None:
        """The reason, in one line, why it or a component has no image for its platform and GPUs, or None."""
        for part in self.parts:
            for missing in part.not_for:
                if missing.platform == part.platform and missing.accelerator in (None, part.accelerator):
                    kind = " for GPUs" if missing.accelerator else ""
                    return f"engine {part.engine!r} has no {part.platform} image{kind}: {missing.reason}"
        releases = {part.cuda for part in self.components if part.accelerator}
        if len(releases) > 1:
            named = ", ".join(f"{part.name} {part.cuda}" for part in self.components)
            return f"its components need different releases of CUDA ({named}), and an image has one"
        return None

    @property
    def params(self) -> dict[str, Scalar]:
        """All parameters of the adapter."""
        return {**self.build_params, **self.search_params}

    @property
    def unpinned(self) -> tuple[str, ...]:
        """The names of itself and its components with files without a checksum."""
        return tuple(part.name for part in self.parts if any(asset.unpinned for asset in part.assets))

    @property
    def prepared_with(self) -> dict[str, Scalar | tuple[Scalar, ...]]:
        """The parameters that ``prepare`` reads; one that is swept has all its values."""
        return {name: self.swept.get(name, value) for name, value in self.params.items() if name in self.prepare_params}


def images_dir() -> Path:
    """Return ``images/``, which has a folder for each engine."""
    return data_root() / "images"


def own_images_dir() -> Path | None:
    """Return the folder of the user's own engines (environment variable ``HARNESS_IMAGES``), or None."""
    folder = os.environ.get("HARNESS_IMAGES")
    if folder and not Path(folder).is_dir():
        raise FileError(f"HARNESS_IMAGES: {folder} is no folder; name one that holds <engine>/engine.toml, or unset it")
    return Path(folder) if folder else None


def systems(*folders: Path, wrong: dict[str, FileError] | None = None) -> dict[str, System]:
    """Read all systems by name, of the given folders, else of ``images/`` and the user's own.

    Raises:
        FileError: a TOML file is wrong, two systems share a name, or a component is no system; with ``wrong``, it is
            added there by the system's name instead, and the others are returned.
    """
    own = own_images_dir()
    searched = folders or (images_dir(), *([own] if own else []))
    by_name: dict[str, System] = {}
    files: dict[str, SystemFile] = {}
    found: dict[str, FileError] = {}
    for path in (path for folder in searched for path in sorted(folder.glob("*/systems/*.toml"))):
        try:
            declared = _declared(path, by_name.get(path.stem), files)
            by_name[path.stem], files[path.stem] = _system(path, declared), declared
        except FileError as error:
            found[path.stem] = error
    composite = {name: declared for name, declared in files.items() if declared.components}
    for name, declared in composite.items():
        try:
            by_name[name] = _joined(by_name[name], _components(by_name[name], declared, by_name, composite))
        except ValueError as error:
            found[name] = FileError(f"{by_name[name].file}: {error}")
    for name, system in by_name.items():
        owner, _, kind = name.rpartition("-")
        if kind in ("cuda", "search") and owner in by_name:
            found[name] = FileError(f"{system.file}: {owner} may have an image of this name; rename the file")
    if wrong is None:
        for fault in found.values():
            raise fault
    else:
        wrong.update(found)
    return {name: system for name, system in by_name.items() if name not in found}


def _declared(path: Path, earlier: System | None, files: dict[str, SystemFile]) -> SystemFile:
    """Read a system's file; raise FileError if it is wrong, or its name is taken."""
    if not re.fullmatch(NAME_PATTERN, path.stem):
        raise FileError(f"{path}: system names are lower-case letters, digits, '.', '_' or '-'; rename the file")
    declared = validate(SystemFile, read_toml(path), path)
    if earlier and not (earlier.engine == path.parent.parent.name and declared.pins(files[path.stem])):
        raise FileError(f"{path}: the engine {earlier.engine!r} has a system of this name; rename one")
    return declared


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
    lacks = f"{own} has no engine.toml, and no shipped engine is called {own.name!r} ({shipped})"
    raise FileError(f"{path}: {lacks}; add one, or rename the folder")


def _system(path: Path, declared: SystemFile) -> System:
    folder = _engine_dir(path)
    engine = validate(EngineFile, read_toml(folder / "engine.toml"), folder / "engine.toml")
    settings = {**dict(engine), **dict(declared), "components": ()}
    shared = tuple(_shared(folder, name) for name in engine.shared)
    location = {"name": path.stem, "file": path, "engine": folder.name, "engine_dir": folder}
    return System.model_validate({**settings, **location, "engine_assets": engine.assets, "shared": shared})


def _shared(engine_dir: Path, name: str) -> Path:
    for folder in (engine_dir.parent, images_dir()):
        if (folder / "shared" / name).is_dir():
            return folder / "shared" / name
    raise FileError(
        f"{engine_dir / 'engine.toml'}: key 'shared': there is no folder shared/{name}; add it or correct the name"
    )


def _components(
    joining: System, declared: SystemFile, known: dict[str, System], composite: Collection[str]
) -> list[System]:
    """Return the components of a system, with the parameters that it sets; their images may depend on them.

    Raises:
        ValueError: they are not two systems that fit into one image, a parameter is unknown to them, or the second of
            two stages cannot score.
    """
    if len(declared.components) != 2 or len(set(declared.components)) != 2:
        raise ValueError(f"key 'components': {len(declared.components)} names, must be two different systems")
    components = []
    for name in declared.components:
        if name not in known:
            raise ValueError(f"key 'components': unknown system {name!r}{did_you_mean(name, set(known))}")
        if name in composite:
            raise ValueError(f"key 'components': {name!r} has components itself; name those")
        changed: dict[str, dict[str, Scalar]] = {"with_gpus": known[name].with_gpus}
        for kind in PARAMETERS:
            own, changes = getattr(known[name], kind), _of_component(name, getattr(declared, kind))
            if unknown := next((key for key in changes if key not in own), None):
                hint = did_you_mean(unknown, set(own))
                raise ValueError(f"key '{kind}': {name!r} has no parameter {unknown!r} there{hint}")
            changed[kind] = {**own, **changes}
            changed["with_gpus"] = _without(changed["with_gpus"], changes)
        changed["with_gpus"] |= _of_component(name, declared.with_gpus)
        components.append(known[name].model_copy(update=changed))
    if joining.two_stages and not components[1].scores:
        able = ", ".join(sorted(each.name for each in known.values() if each.scores)) or "none"
        raise ValueError(f"key 'components': {components[1].name!r} scores no given documents; rerankers are: {able}")
    if clash := _clash(*components):
        raise ValueError(f"key 'components': {clash}")
    return components


def _of_component(name: str, given: Mapping[str, Scalar]) -> dict[str, Scalar]:
    return {key.removeprefix(f"{name}."): value for key, value in given.items() if key.startswith(f"{name}.")}


def _without(params: Mapping[str, Scalar], named: Collection[str]) -> dict[str, Scalar]:
    return {key: value for key, value in params.items() if key not in named}


def _joined(system: System, components: list[System]) -> System:
    """Add components and their parameters to a system."""
    joined: dict[str, object] = {
        kind: {
            **getattr(system, kind),
            **{f"{part.name}.{key}": value for part in components for key, value in getattr(part, kind).items()},
        }
        for kind in (*PARAMETERS, "with_gpus")
    }
    stand_ins = "; ".join(part.stand_in for part in components if part.stand_in)
    return system.model_copy(
        update={
            **joined,
            "components": tuple(components),
            # A second stage returns no more than the first found.
            "fewer_hits_ok": system.fewer_hits_ok or (system.two_stages and components[0].fewer_hits_ok),
            "result_cache": system.result_cache or any(part.result_cache for part in components),
            "stand_in": system.stand_in or stand_ins or None,
        }
    )


def _clash(first: System, second: System) -> str | None:
    """Return the reason why two systems cannot share an image, or None: files of one path must be equal."""

    def contents(system: System) -> dict[str, tuple[object, str]]:
        """Map each path below /opt to a value that is equal if the files are, and to its description."""
        code = (system.engine_dir, f"an engine {system.engine!r}, in two folders")
        paths: dict[str, tuple[object, str]] = {f"/opt/{system.engine}": code}
        for folder in system.shared:
            paths[f"/opt/shared/{folder.name}"] = (folder, f"shared code {folder.name!r}, in two folders")
        for asset in (*system.engine_assets, *system.assets):
            is_prepared = system.prepare is not None and asset in system.assets
            prepared = (system.prepare, system.prepared_with) if is_prepared else None
            description = f"assets in {asset.folder!r}, and not the same"
            paths[f"/opt/assets/{asset.folder}"] = ((asset.sha256, asset.files, prepared), description)
        return paths

    ours, theirs = contents(first), contents(second)
    path = next((path for path in sorted(ours.keys() & theirs.keys()) if ours[path][0] != theirs[path][0]), None)
    return f"both have {ours[path][1]}; rename one" if path else None


def named(names: Iterable[str], *folders: Path) -> dict[str, System]:
    """Return several systems by name, in the given order.

    Raises:
        UnknownName: no system has one of the names.
        FileError: the file of one of them is wrong; wrong files of other systems do no harm.
    """
    wrong: dict[str, FileError] = {}
    known, names = systems(*folders, wrong=wrong), list(names)
    for name in names:
        if name in wrong:
            raise wrong[name]
        if name not in known:
            unset = not folders and not os.environ.get("HARNESS_IMAGES")
            hint = "systems of your own are found once HARNESS_IMAGES names their folder" if unset else ""
            raise UnknownName("system", name, known, hint)
    return {name: known[name] for name in names}


def system(name: str, *folders: Path) -> System:
    """Return one system by name.

    Raises:
        UnknownName: no system has the name.
        FileError: its file is wrong.
    """
    return named([name], *folders)[name]
