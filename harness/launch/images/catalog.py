"""The catalogue: engines (folders of ``images/``) and the systems that they serve."""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Literal

from harness.config import NAME_PATTERN, ConfigModel, data_root, read_toml, validate
from harness.errors import FileError, UnknownName, did_you_mean
from harness.launch.images.platforms import AMD64, debian
from harness.launch.images.system_files import Asset, EngineFile, NotFor, SystemFile
from harness.records import Scalar


class System(ConfigModel):
    """A system that can be measured: engine folder, parameters, assets, and the systems that it is made of.

    ``platform`` is what an image of it is for; launchers set theirs.
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
        """The packages of its engine alone: for its platform or accelerator where the engine has such a lock."""
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
        """The name of its image; for an accelerator, its own or a component's, there is another image."""
        able = next((each.accelerator for each in (self, *self.components) if each.accelerator), None)
        return f"{self.name}-{able}" if able else self.name

    @property
    def engine_image(self) -> str:
        """The same of its engine's image."""
        return f"{self.engine}-{self.accelerator}" if self.accelerator else self.engine

    def on(self, gpus: int) -> System:
        """The same system with packages that can use that many GPUs, where its engine has such."""
        if gpus == 0:
            return self
        able = any((folder / "requirements-cuda.lock").is_file() for folder in (self.engine_dir, *self.shared))
        components = tuple(each.on(gpus) for each in self.components)
        return self.model_copy(update={"accelerator": "cuda" if able else None, "components": components})

    def made_for(self, platform: str) -> System:
        """The same system on that platform (``linux/arm64``)."""
        components = tuple(each.made_for(platform) for each in self.components)
        return self.model_copy(update={"platform": platform, "components": components})

    @property
    def lacking(self) -> str | None:
        """The reason, in one line, why it has no image for this platform, or None; a component's counts as its own."""
        for each in (self, *self.components):
            for stated in each.not_for:
                if stated.platform == each.platform and stated.accelerator in (None, each.accelerator):
                    kind = " for GPUs" if stated.accelerator else ""
                    return f"engine {each.engine!r} has no {each.platform} image{kind}: {stated.reason}"
        return None

    @property
    def params(self) -> dict[str, Scalar]:
        """All parameters that the adapter sees."""
        return {**self.build_params, **self.search_params}

    @property
    def unpinned(self) -> tuple[str, ...]:
        """Itself and its components, as far as some of their files have no checksum yet."""
        return tuple(each.name for each in (self, *self.components) if any(one.unpinned for one in each.system_assets))

    @property
    def told(self) -> str:
        """Its description for people, marked where weights are not pinned or stand in for others."""
        pin = "; ".join(f"not pinned: harness pin {name}" for name in self.unpinned)
        lacks = "; ".join(f"not for {each.platform}: {each.reason}" for each in self.not_for if not each.accelerator)
        marks = [
            *([pin] if pin else []),
            *([lacks] if lacks else []),
            *([f"† {self.stand_in}"] if self.stand_in else []),
        ]
        return self.description + "".join(f" [{mark}]" for mark in marks)

    @property
    def prepared_with(self) -> dict[str, Scalar]:
        """Those that the making of its image reads."""
        return {name: value for name, value in self.params.items() if name in self.prepare_params}


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
        FileError: a TOML file is wrong, two systems share a name, or a component is no system.
    """
    own = own_images_dir()
    looked_in = folders or (images_dir(), *([own] if own else []))
    found: dict[str, System] = {}
    files: dict[str, SystemFile] = {}
    joined: dict[str, tuple[Path, SystemFile]] = {}
    for path in (path for folder in looked_in for path in sorted(folder.glob("*/systems/*.toml"))):
        if not re.fullmatch(NAME_PATTERN, path.stem):
            raise FileError(f"{path}: system names are lower-case letters, digits, '.', '_' or '-'; rename the file")
        declared = validate(SystemFile, read_toml(path), path)
        known = found.get(path.stem)
        if known and not (known.engine == path.parent.parent.name and declared.pins(files[path.stem])):
            raise FileError(f"{path}: the engine {known.engine!r} has a system of this name; rename one")
        files[path.stem] = declared
        found[path.stem] = _system(path, declared)
        if declared.components:
            joined[path.stem] = path, declared
    for name, (path, declared) in joined.items():
        found[name] = _joined(found[name], path, declared, found, joined)
    return found


def _engine_dir(path: Path) -> Path:
    """The engine that serves a system's file: the folder it lies in, or the shipped one of that name.

    Raises:
        FileError: neither has an ``engine.toml``.
    """
    own = path.parent.parent
    for folder in (own, images_dir() / own.name):
        if (folder / "engine.toml").is_file():
            return folder
    shipped = ", ".join(sorted(each.parent.name for each in images_dir().glob("*/engine.toml")))
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
    system: System, path: Path, declared: SystemFile, known: dict[str, System], made_of_others: Container[str]
) -> System:
    """A system with its components in it, and with their parameters.

    Raises:
        FileError: they are not two systems that can lie in one image, or a parameter is none of theirs.
    """
    if len(declared.components) != 2 or len(set(declared.components)) != 2:
        raise FileError(f"{path}: key 'components': {len(declared.components)} names, must be two different systems")
    parts = []
    for name in declared.components:
        if name not in known:
            raise FileError(f"{path}: key 'components': unknown system {name!r}{did_you_mean(name, set(known))}")
        if name in made_of_others:
            raise FileError(f"{path}: key 'components': {name!r} is itself made of others; name its components")
        parts.append(_adjusted(known[name], path, declared))
    clash = _clash(*parts)
    if clash:
        raise FileError(f"{path}: key 'components': {clash}")

    def with_theirs(kind: str) -> dict[str, Scalar]:
        theirs = {f"{each.name}.{key}": value for each in parts for key, value in getattr(each, kind).items()}
        return {**getattr(system, kind), **theirs}

    return system.model_copy(
        update={
            "components": tuple(parts),
            "build_params": with_theirs("build_params"),
            "search_params": with_theirs("search_params"),
            "result_cache": system.result_cache or any(each.result_cache for each in parts),
            "stand_in": system.stand_in or "; ".join(filter(None, (each.stand_in for each in parts))) or None,
        }
    )


def _adjusted(part: System, path: Path, declared: SystemFile) -> System:
    """A component with the parameters that the joining system sets for it: its image may depend on them."""
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
    """Return why two systems cannot share an image, or None: files with one place must be the same for both."""

    def places(system: System) -> dict[str, tuple[object, str]]:
        """Map each place below /opt to a value that is equal if the files are, and to words for it."""
        found: dict[str, tuple[object, str]] = {
            f"/opt/{system.engine}": (system.engine_dir, f"an engine {system.engine!r}, in two folders"),
            **{
                f"/opt/shared/{each.name}": (each, f"shared code {each.name!r}, in two folders")
                for each in system.shared
            },
        }
        for asset in (*system.engine_assets, *system.system_assets):
            made_ready = system.prepare is not None and asset in system.system_assets
            prepared = (system.prepare, system.prepared_with) if made_ready else None
            words = f"assets in {asset.folder!r}, and not the same"
            found[f"/opt/assets/{asset.folder}"] = ((asset.sha256, asset.files, prepared), words)
        return found

    ours, theirs = places(first), places(second)
    for place in sorted(ours.keys() & theirs.keys()):
        if ours[place][0] != theirs[place][0]:
            return f"both have {ours[place][1]}; rename one"
    return None


def named(names: Iterable[str], *folders: Path) -> dict[str, System]:
    """Find several systems by name, reading the catalogue once; their order is kept.

    Raises:
        UnknownName: no system has one of the names.
    """
    known = systems(*folders)
    return {name: _one(name, known, shipped=not folders) for name in names}


def system(name: str, *folders: Path) -> System:
    """One system by name.

    Raises:
        UnknownName: there is none of that name.
    """
    return _one(name, systems(*folders), shipped=not folders)


def _one(name: str, known: dict[str, System], *, shipped: bool) -> System:
    if name not in known:
        unset = shipped and not os.environ.get("HARNESS_IMAGES")
        hint = "systems of your own are found once HARNESS_IMAGES names their folder" if unset else ""
        raise UnknownName("system", name, known, hint)
    return known[name]
