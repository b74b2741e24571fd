"""The catalogue of engines and systems, read from ``images/<engine>/engine.toml`` and ``systems/<system>.toml``."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from harness.commands import quoted
from harness.config import NAME_PATTERN, data_root, read_toml, validate
from harness.containment import inside
from harness.driver.records import Scalar
from harness.errors import FileError, UnknownName, UsageError, listed, nearest_or_known
from harness.filesystem import without_litter
from harness.launch.images.systems import PARAMETERS, EngineFile, System, SystemFile, of_component, version_lock
from harness.results.schema import VERSION
from harness.untrusted import ForeignText

# First words of the names of other images: the build of a system that took one would wait for its own lock.
_NOT_SYSTEMS = ("base", "toolchain", "engine")


def images_dir() -> Path:
    """Return ``images/``, which has a folder for each engine."""
    return data_root() / "images"


def own_images_dir() -> Path | None:
    """Return the folder of the user's own engines (environment variable ``HARNESS_IMAGES``), or None."""
    folder = os.environ.get("HARNESS_IMAGES")
    if folder and not Path(folder).is_dir():
        raise FileError(
            f"HARNESS_IMAGES: {folder} is not a folder; name one that holds <engine>/engine.toml, or unset it"
        )
    return Path(folder) if folder else None


def systems(
    *folders: Path, wrong: dict[str, FileError] | None = None, only: Collection[str] | None = None
) -> dict[str, System]:
    """Read systems by name, of the given folders, else of ``images/`` and the user's own.

    Args:
        folders: where engines are.
        wrong: takes the error of each system whose file is wrong.
        only: read these systems and those that they need, in place of all.

    Raises:
        FileError: a TOML file is wrong, two systems share a name, or a component does not exist; with ``wrong``, it
            takes the error by the system's name instead, and the other systems are returned.
    """
    own = own_images_dir()
    searched = folders or (images_dir(), *([own] if own else []))
    by_name: dict[str, System] = {}
    files: dict[str, SystemFile] = {}
    found: dict[str, FileError] = {}
    paths = [path for folder in searched for path in without_litter(sorted(folder.glob("*/systems/*.toml")))]
    engine = functools.cache(_engine)  # of this call: files may change before the next
    for path in paths if only is None else _needed(paths, only):
        try:
            declared = _declared(path, by_name.get(path.stem), files)
            folder = _engine_dir(path)
            by_name[path.stem], files[path.stem] = _system(path, declared, folder, *engine(folder)), declared
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


def _needed(paths: Sequence[Path], only: Collection[str]) -> list[Path]:
    """Return the files of these systems, of their components, and of systems whose images may have their names."""
    wanted = {*only, *(re.sub("-(cuda|search)$", "", name) for name in only)}
    for path in (path for path in paths if path.stem in only):
        with suppress(FileError):  # it is raised when the system is read
            components = read_toml(inside(path.parent.parent, f"systems/{path.name}")).get("components")
            wanted.update(map(str, components if isinstance(components, list) else ()))
    return [path for path in paths if path.stem in wanted]


def _declared(path: Path, earlier: System | None, files: dict[str, SystemFile]) -> SystemFile:
    """Read a system's file; raise FileError if it is wrong, or its name is taken."""
    if not re.fullmatch(NAME_PATTERN, path.stem):
        raise FileError(f"{path}: system names are lower-case letters, digits, '.', '_' or '-'; rename the file")
    if not re.fullmatch(NAME_PATTERN, path.parent.parent.name):
        raise FileError(f"{path}: engine names are lower-case letters, digits, '.', '_' or '-'; rename the folder")
    if (first := path.stem.partition("-")[0]) in _NOT_SYSTEMS:
        raise FileError(f"{path}: images that are not a system's have names that begin with {first!r}; rename the file")
    declared = validate(SystemFile, read_toml(inside(path.parent.parent, f"systems/{path.name}")), path)
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
        if inside(folder, "engine.toml").is_file():
            return folder
    shipped = listed(sorted(file.parent.name for file in images_dir().glob("*/engine.toml")))
    lacks = f"{own} has no engine.toml, and no shipped engine is called {own.name!r} ({shipped})"
    raise FileError(f"{path}: {lacks}; add one, or rename the folder")


def _engine(folder: Path) -> tuple[EngineFile, tuple[Path, ...]]:
    """Read an engine's file; return it with the folders of shared code."""
    engine = validate(EngineFile, read_toml(folder / "engine.toml"), folder / "engine.toml")
    return engine, tuple(_shared(folder, name) for name in engine.shared)


def _system(path: Path, declared: SystemFile, folder: Path, engine: EngineFile, shared: tuple[Path, ...]) -> System:
    settings = {**dict(engine), **dict(declared), "components": ()}
    location = {"name": path.stem, "file": path, "engine": folder.name, "engine_dir": folder}
    return System.model_validate({**settings, **location, "engine_assets": engine.assets, "shared": shared})


def _shared(engine_dir: Path, name: str) -> Path:
    for folder in (engine_dir.parent, images_dir()):
        if (folder / "shared" / name).is_dir():
            return inside(folder, f"shared/{name}")
    raise FileError(
        f"{engine_dir / 'engine.toml'}: key 'shared': the folder shared/{name} does not exist; add it, or correct the"
        " name"
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
            raise ValueError(f"key 'components': unknown system {name!r}{nearest_or_known(name, known)}")
        if name in composite:
            raise ValueError(f"key 'components': {name!r} has components itself; name those")
        changed: dict[str, dict[str, Scalar]] = {"with_gpus": known[name].with_gpus}
        for kind in PARAMETERS:
            own, changes = getattr(known[name], kind), of_component(name, getattr(declared, kind))
            if unknown := next((key for key in changes if key not in own), None):
                hint = nearest_or_known(unknown, own)
                raise ValueError(f"key '{kind}': {name!r} has no parameter {unknown!r} there{hint}")
            changed[kind] = {**own, **changes}
            changed["with_gpus"] = {key: value for key, value in changed["with_gpus"].items() if key not in changes}
        changed["with_gpus"] |= of_component(name, declared.with_gpus)
        components.append(known[name].model_copy(update=changed))
    if joining.two_stages and not components[1].scores:
        able = listed(sorted(each.name for each in known.values() if each.scores)) or "none"
        raise ValueError(f"key 'components': {components[1].name!r} scores no given documents; rerankers are: {able}")
    if clash := _clash(*components):
        raise ValueError(f"key 'components': {clash}")
    return components


def _joined(system: System, components: list[System]) -> System:
    """Add components and their parameters to a system."""
    joined: dict[str, object] = {
        kind: {
            **getattr(system, kind),
            **{f"{part.name}.{key}": value for part in components for key, value in getattr(part, kind).items()},
        }
        for kind in (*PARAMETERS, "with_gpus")
    }
    stand_ins = ForeignText("; ".join(part.stand_in.raw for part in components if part.stand_in))
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
    parts = {name: name.partition(VERSION) for name in names}
    bases = [base for base, _, _ in parts.values()]
    known = systems(*folders, wrong=wrong, only=bases)
    if not {*known, *wrong} >= set(bases):  # an error may name any system
        known = systems(*folders, wrong=wrong)
    for name in bases:
        if name in wrong:
            raise wrong[name]
        if name not in known:
            unset = not folders and not os.environ.get("HARNESS_IMAGES")
            own = "Systems of your own are found once HARNESS_IMAGES names their folder" if unset else ""
            raise UnknownName("system", name, known, f"{quoted('systems')} lists all", besides=own)
    return {
        name: known[base].at_version(version, functools.partial(_version_dir, known)) if mark else known[base]
        for name, (base, mark, version) in parts.items()
    }


def _version_dir(known: Mapping[str, System], system: System, version: str) -> Path:
    """Return the folder with the lock of a version: the user's folder of the system's engine, else the engine's own.

    Raises:
        UsageError: the version's name is not valid or taken, or there is no such lock.
    """
    name = f"{system.name}{VERSION}{version}"
    if not re.fullmatch(NAME_PATTERN, version) or re.search("-(cuda|search|lean)$", version):
        raise UsageError(
            f"{name}: write a version as lower-case letters, digits, '.', '_', '-', and not with the end -cuda, -search"
            " or -lean"
        )
    if (taken := name.replace(VERSION, "__")) in known:
        raise UsageError(f"{name}: the system {taken} has the name of its image; choose another version")
    own, usual = own_images_dir(), system.lock
    folders = [*([own / system.engine] if own else []), system.engine_dir]
    lock = version_lock(usual, version)
    for folder in folders:
        if folder.is_dir() and inside(folder, lock).is_file():
            return folder
    where = folders[0] / lock if own else f"{lock} in a folder {system.engine}/ that HARNESS_IMAGES/ has"
    raise UsageError(
        f"{name}: no lock of this version; write {where}, with all packages of {usual} (uv pip compile"
        " --generate-hashes)"
    )


def system(name: str, *folders: Path) -> System:
    """Return one system by name.

    Raises:
        UnknownName: no system has the name.
        FileError: its file is wrong.
    """
    return named([name], *folders)[name]


def images_to_build(
    declared: Sequence[System], engines: Iterable[str], gpus: int, wrong: dict[str, FileError]
) -> list[tuple[System, bool]]:
    """Return a system for each image to build, and whether its engine's image is meant.

    Args:
        declared: systems whose images are built.
        engines: names of engines whose images are built too; without systems and engines, all engines.
        gpus: of the hardware profile.
        wrong: takes the error of each system whose file is wrong.

    Raises:
        UnknownName: no engine has this name.
    """
    used = [system.for_job(kind, gpus=gpus) for system in declared for kind in ("build", "search")]
    chosen = [(system, False) for system in {system.image: system for system in used}.values()]
    by_engine = {system.engine: system.for_job("build", gpus=gpus) for system in systems(wrong=wrong).values()}
    for name in dict.fromkeys(engines):
        if name not in by_engine:
            raise UnknownName("engine", name, by_engine)
        chosen.append((by_engine[name], True))
    return chosen or [(system, True) for system in by_engine.values() if system.accelerator or not gpus]
