"""A suite as one folder for machines without a network: images, data, indexes, harness itself and its packages.

Each part is whole or absent, so the same command goes on after a stop.  The folder has a cache of its own, in which
jobs have the same identity as here.
"""

from __future__ import annotations

import hashlib
import logging
import shlex
import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import tomlkit

from harness import datasets, filesystem
from harness.config import published_folder
from harness.containment import inside
from harness.datasets import Dataset, dataset_name, native
from harness.datasets.passage_positions import POSITIONS
from harness.driver.records import digest
from harness.errors import FileError, ImageError, UsageError, counted
from harness.jobs import indexes, preflight
from harness.jobs.indexes import Index
from harness.jobs.inputs import Inputs, RunOptions
from harness.jobs.pinning import pin_inputs
from harness.jobs.plan import component_keys, index_key
from harness.jobs.suite import Suite
from harness.launch.apptainer import ApptainerLauncher
from harness.launch.base import Launcher
from harness.launch.images import export, sif
from harness.launch.images.assets import run_pip
from harness.launch.images.systems import System
from harness.launch.process import ProcessLauncher
from harness.progress import task
from harness.remote.bundle import LOCK, OWN_IMAGES, bundle_entries, lock
from harness.remote.shipment import FACTS, INDEX_DATA
from harness.results import pin_lock
from harness.results.store import Store
from harness.untrusted import decode, read_whole, reading

log = logging.getLogger(__name__)

# What jobs run in where a folder is used.
LAUNCHERS = ("apptainer", "process")
_CACHE, _DATASETS, _PYTHON, _PACKAGES = "cache", "datasets", "python", "packages"
_SUITE, _WRAPPER, _RESULTS = "suite.toml", "harness", "results"
# Files that jobs rely on.  Other files of the cache, such as locks, come and go.
_CHECKED = (
    *(f"{_CACHE}/{name}" for name in (sif.FOLDER, "corpora", "indexes", "process")),
    *(_DATASETS, _PYTHON, _SUITE, _WRAPPER),
)
_STATE = "staged.txt"
_MAX_SUMS_BYTES = 256 << 20
_SCRIPT = """#!/bin/sh
# Runs harness with the packages and the cache of this folder, without a network.
here=$(cd "$(dirname "$0")" && pwd -P) || exit 1
PYTHONPATH=$here/{python}/{packages}:$here/{python}
HARNESS_CACHE=$here/{cache}
PYTHONPYCACHEPREFIX=$here/{cache}/pycache
export PYTHONPATH HARNESS_CACHE PYTHONPYCACHEPREFIX
unset HARNESS_IMAGES
[ ! -d "$here/{python}/{own}" ] || export HARNESS_IMAGES="$here/{python}/{own}"
for python in {executable} python{version} python3; do
    if "$python" -c 'import sys; sys.exit("%d.%d" % sys.version_info[:2] != "{version}")' 2>/dev/null; then
        exec "$python" -P -m harness "$@"
    fi
done
echo "harness: Python {version} is not on this machine, and the staged packages are for it; put it on PATH" >&2
exit 1
"""


@dataclass(frozen=True)
class StagedPart:
    """One part of a staged folder: its kind, its name and the bytes of its files."""

    kind: str
    name: str
    size_bytes: int


def stage(
    suite: Suite, file: Path, options: RunOptions, launcher: str, folder: Path, models: Path | None = None
) -> list[StagedPart]:
    """Put all that a suite's jobs need into a folder; make what is missing, and leave what is whole.

    Args:
        file: the suite's file.
        options: name the results, whose pins hold, and the cache, from which finished indexes are copied.
        launcher: of :data:`LAUNCHERS`.
        folder: a new folder, or one of an earlier call.
        models: a local folder of models, besides the hub.

    Raises:
        FileError: a dataset is missing, or a staged file has changed since.
        UsageError: the suite is wrong, or the folder has other files.
        ImageError: an image or a package cannot be made; what is staged stays.
        EngineError: an image is missing and no engine answers.
        StoreError: the disk is full.
    """
    cache = _prepare(folder)
    with filesystem.cache_lock(cache, "stage"):
        _check_earlier(folder)
        process = launcher == "process"
        opened: Launcher = ProcessLauncher(cache, models) if process else ApptainerLauncher(options.cache, models)
        with closing(opened):
            inputs = _pinned(preflight.gather_elsewhere(suite, options), options, opened, folder)
            for name, dataset in inputs.datasets.items():
                _stage_dataset(dataset, folder / _DATASETS / name, cache)
            images = inputs.images(inputs.cells).values()
            if process:
                _stage_environments(opened, images)
            else:
                _stage_images(opened, images, options.cache, cache)
            for key in dict.fromkeys(_index_keys(inputs, opened)):
                _stage_index(key, options.cache, cache, time.monotonic() + inputs.limits.build_s)
        _stage_python(folder / _PYTHON)
        _write(folder / _SUITE, _suite_text(suite, file, inputs))
        _write(folder / _WRAPPER, _script(), executable=True)
        # Not the results that were measured there: they grow.
        filesystem.write_checksums(folder, (*_CHECKED, f"{_RESULTS}/{inputs.suite.name}/{pin_lock.FILE}"))
    return list(_parts(folder))


def _prepare(folder: Path) -> Path:
    """Make the folder; return its cache.

    Raises:
        UsageError: it has files of another origin.
    """
    ours = {_CACHE, _DATASETS, _PYTHON, _SUITE, _WRAPPER, _RESULTS, filesystem.CHECKSUMS}
    folder.mkdir(parents=True, exist_ok=True)
    others = sorted(path.name for path in folder.iterdir() if path.name not in ours and ".partial" not in path.name)
    if others:
        raise UsageError(f"{folder}: has {others[0]!r}, which `harness stage` has not written; name a new folder")
    cache = folder / _CACHE
    cache.mkdir(exist_ok=True)
    for place in (folder, folder / _DATASETS, cache, cache / "indexes"):
        filesystem.remove_leftovers(place)
    return cache


def _check_earlier(folder: Path) -> None:
    """Raise FileError if a file of an earlier call has changed since; a missing one is made again."""
    path = folder / filesystem.CHECKSUMS
    if not path.exists():
        return
    remedy = "remove the folder, and stage again"
    with reading(path, remedy):
        lines = decode(read_whole(path, _MAX_SUMS_BYTES), path).splitlines()
    known = {name: sha256 for sha256, _, name in (line.partition("  ") for line in lines)}
    present = {name: sha256 for name, sha256 in known.items() if inside(folder, name).is_file()}
    changed = [name for name, sha256 in present.items() if filesystem.sha256(folder / name) != sha256]
    if changed:
        raise FileError(f"{folder}: {counted(len(changed), 'file')} changed since, first {changed[0]}; {remedy}")


def _pinned(inputs: Inputs, options: RunOptions, launcher: Launcher, folder: Path) -> Inputs:
    """Pin unpinned files of systems as a run does; the folder gets the pins."""
    store, names = Store(options.results, inputs.suite.name), inputs.needed(inputs.cells)
    if any(inputs.systems[name].unpinned for name in names):
        with store.held():
            inputs, errors = pin_inputs(inputs, store, launcher, names)
        for error in errors.values():
            raise error
    pins = store.folder / pin_lock.FILE
    if pins.is_file():
        target = folder / _RESULTS / inputs.suite.name / pin_lock.FILE
        target.parent.mkdir(parents=True, exist_ok=True)
        export.copy(pins, target)
    return inputs


def _stage_dataset(dataset: Dataset, target: Path, cache: Path) -> None:
    """Copy a dataset, and prepare the copy's corpus in the folder's cache.

    Raises:
        FileError: the copy is another dataset.
    """
    with suppress(FileError):
        if target.is_dir() and _content(datasets.load(target, cache)) == _content(dataset):
            return
    with filesystem.fresh_folder(target) as fresh:
        _put(native.copy_files(dataset), fresh)
        if dataset.positions:
            (fresh / POSITIONS).write_bytes(dataset.positions)
    if _content(datasets.load(target, cache)) != _content(dataset):
        raise FileError(f"{target}: differs from the dataset {dataset.name}; see that nothing writes there")


def _content(dataset: Dataset) -> list[object]:
    """Return all that results depend on."""
    return [dataset.corpus.sha256, dataset.qrels_sha256, dataset.queries, dataset.positions]


def _stage_environments(launcher: Launcher, systems: Iterable[System]) -> None:
    """Make the environments of the process launcher in the folder's cache."""
    images = {system.image: system for system in systems if launcher.cannot_run(system) is None}
    for _, made in launcher.prepare_all(images):
        if isinstance(made, ImageError):
            raise made


def _stage_images(launcher: Launcher, systems: Iterable[System], own: Path, cache: Path) -> None:
    """Make the SIF images of systems and their components in the folder's cache, or copy them from one's own."""
    parts = {part.image: part for system in systems for part in (system, *system.components)}
    for part in parts.values():
        if not _has_image(launcher.recipe(part), own, cache):
            with task(f"{part.image}: image") as progress:
                sif.build(cache, own, launcher.models, part, progress)


def _has_image(recipe: str, own: Path, cache: Path) -> bool:
    """Return whether the folder's cache has an image; copy it from one's own cache if that has it."""
    if sif.find_whole(cache, recipe):
        return True
    found = sif.find_whole(own, recipe)
    if found is None:
        return False
    (cache / sif.FOLDER).mkdir(exist_ok=True)
    for source in (found.path, found.path.with_suffix(".json")):
        export.copy(source, cache / sif.FOLDER / source.name)
    return True


def _index_keys(inputs: Inputs, launcher: Launcher) -> Iterator[str]:
    """Yield the keys of all indexes of a suite, its components' included."""
    for cell in inputs.cells:
        builder, corpus = inputs.builder(cell), inputs.datasets[cell.dataset].corpus
        yield index_key(builder, launcher.recipe(builder), corpus.sha256)
        yield from component_keys(builder, launcher, corpus.sha256).values()


def _stage_index(key: str, own: Path, cache: Path, until: float) -> None:
    """Copy an index of one's own cache, if it is built and has not changed."""
    index: Index | None = indexes.find(own, key)
    if index is None or indexes.find(cache, key):
        return
    with index.in_use():
        if not index.unchanged(until):
            log.info(f"  the index {key} has changed since it was built; it is left out")
            return
        with filesystem.fresh_folder(indexes.folder(cache, key)) as fresh:
            filesystem.link_tree(index.folder, fresh / INDEX_DATA, copies=True)
            shutil.copyfile(index.folder.parent / FACTS, fresh / FACTS)


def _stage_python(target: Path) -> None:
    """Install harness and its packages, unless the folder has exactly these.

    Raises:
        ImageError: pip failed.
    """
    # With the shipped results, which give estimates and examples.
    published = published_folder()
    shipped = [(f"results/published/{path.relative_to(published)}", path) for path in sorted(published.rglob("*.*"))]
    entries = [*bundle_entries(), *((name, path) for name, path in shipped if path.is_file())]
    hashes = [(name, hashlib.sha256(_bytes(content)).hexdigest()) for name, content in entries]
    state, place = digest([hashes, sys.version_info[:2], sys.platform]), target / _STATE
    if place.is_file() and place.read_text(encoding="ascii").strip() == state:
        return
    log.info("installing harness and its packages")
    # Wheels alone: the code of a source package would run here.
    options = ["--quiet", "--no-deps", "--require-hashes", "--only-binary=:all:", "--no-compile"]
    with filesystem.fresh_folder(target) as fresh:
        _put(entries, fresh)
        packages, requirements = fresh / _PACKAGES, fresh / LOCK
        requirements.write_text(lock(whole=True), encoding="utf-8")
        if failure := run_pip("install", *options, "--target", str(packages), "-r", str(requirements)):
            raise ImageError(f"harness's packages could not be installed: {failure}; see that pip reaches its index")
        (fresh / _STATE).write_text(f"{state}\n", encoding="ascii")


def _suite_text(suite: Suite, file: Path, inputs: Inputs) -> str:
    """Return the suite's file with the names of the copied datasets."""
    with reading(file, "restore it"):
        document = tomlkit.parse(file.read_text(encoding="utf-8"))
    for part in (document, *document.get("group", ())):
        if "datasets" in part:
            part["datasets"] = [f"./{_DATASETS}/{dataset_name(str(name))}" for name in part["datasets"]]
    languages = {name: code for name in inputs.datasets if (code := inputs.language(name))}
    for key in ("name", "languages"):
        document.pop(key, None)
    # In front, because the file may end in a table.
    head = tomlkit.dumps({"name": suite.name})
    if languages:
        table = tomlkit.inline_table()
        table.update(languages)
        head += f"languages = {table.as_string()}\n"
    return head + tomlkit.dumps(document)


def _script() -> str:
    version = ".".join(map(str, sys.version_info[:2]))
    names = {"python": _PYTHON, "packages": _PACKAGES, "cache": _CACHE, "own": OWN_IMAGES}
    return _SCRIPT.format(executable=shlex.quote(sys.executable), version=version, **names)


def _parts(folder: Path) -> Iterator[StagedPart]:
    """Yield what the folder holds."""
    for kind, place in (
        ("image", f"{_CACHE}/{sif.FOLDER}"),
        ("environment", f"{_CACHE}/process"),
        ("dataset", _DATASETS),
        ("corpus", f"{_CACHE}/corpora"),
        ("index", f"{_CACHE}/indexes"),
        ("harness", _PYTHON),
    ):
        found = sorted((folder / place).iterdir()) if (folder / place).is_dir() else []
        for path in [folder / place] if kind == "harness" else found:
            if path.suffix != ".json":
                yield StagedPart(kind, path.relative_to(folder).as_posix(), _size(path))


def _size(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(entry.stat(follow_symlinks=False).st_size for entry in filesystem.walk(path) if not entry.is_dir())


def _write(path: Path, text: str, *, executable: bool = False) -> None:
    with filesystem.atomic_write(path) as partial:
        partial.write_text(text, encoding="utf-8")
        partial.chmod(0o755 if executable else 0o644)


def _put(entries: Iterable[tuple[str, Path | bytes]], folder: Path) -> None:
    """Write files below a folder, by their names in it."""
    for name, content in entries:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            (folder / name).write_bytes(content)
        else:
            shutil.copyfile(content, folder / name)


def _bytes(content: Path | bytes) -> bytes:
    return content if isinstance(content, bytes) else content.read_bytes()
