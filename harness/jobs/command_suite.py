"""The suite of a command line that names systems, a dataset and hardware in place of a file.

It is written next to the results, so that the next step is to edit it: the same suite measures nothing again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tomlkit

from harness import filesystem
from harness.commands import command
from harness.config import read_toml
from harness.datasets import dataset_name, folder_of
from harness.driver.records import Envelope
from harness.errors import EngineError, HarnessError, UsageError
from harness.pricing import instances
from harness.results.schema import split_size

DEFAULT_PROFILE = "cpu1-mem1"


@contextmanager
def written(write: Callable[[Path], Path], results: Path) -> Iterator[Path]:
    """Write a suite's file into the folder of results; a new one goes if it turns out to measure nothing."""
    before = set(results.glob("*.toml"))
    path = write(results)
    try:
        yield path
    except HarnessError as error:
        # An engine, or a service, may run the next time.
        if path not in before and not path.with_suffix("").is_dir() and not isinstance(error, EngineError):
            path.unlink()
        raise


@dataclass(frozen=True)
class CommandSuite:
    """Systems by name on a dataset (a folder, a shipped one or an id), held to CPUs and memory (``"1GiB"``)."""

    systems: tuple[str, ...]
    dataset: str
    cpus: int
    memory: str

    def write(self, results: Path) -> Path:
        """Write the suite's file into the folder of results; return its path.

        A suite of an earlier command with this dataset and hardware gets the systems that it lacks, and keeps all
        else.

        Raises:
            UsageError: the memory cannot be read, or the file is another suite by now.
        """
        profile, dataset = self._profile(), dataset_from(self.dataset, results)
        name = suite_name(dataset_name(dataset)) or "suite"
        path = results / f"{name if profile.name == DEFAULT_PROFILE else f'{name}-{profile.name}'}.toml"
        keys = {"systems": list(self.systems), "datasets": [dataset], "profiles": [profile.name]}
        document = suite_document(path, keys, more="systems")
        held = [str(system) for system in document.get("systems", ())]
        document["systems"] = [*held, *(system for system in self.systems if system not in held)]
        if profile.name not in instances.hardware_profiles():
            document.setdefault("hardware", {profile.name: {"cpus": self.cpus, "memory": self.memory}})
        write_document(document, path)
        return path

    def _profile(self) -> Envelope:
        """Return the shipped hardware profile with this hardware, else one of its own name."""
        try:
            memory_bytes = instances.parse_memory(self.memory)
        except ValueError as error:
            raise UsageError(f"--memory: {error}") from None
        size = f"{memory_bytes >> 20}m" if memory_bytes % (1 << 30) else f"{memory_bytes >> 30}"
        own = Envelope(f"cpu{self.cpus}-mem{size}", self.cpus, memory_bytes)
        shipped = instances.hardware_profiles().values()
        return next((each for each in shipped if replace(each, name=own.name) == own), own)


def suite_name(words: str) -> str:
    """Return words as the name of a suite, which only has lowercase letters, digits, ``.``, ``_`` and ``-``."""
    return re.sub("[^a-z0-9._-]+", "-", words.lower()).strip("-._")


def suite_document(path: Path, keys: Mapping[str, Any], more: str = "") -> tomlkit.TOMLDocument:
    """Return the suite that an earlier command wrote into this file, else a new one with these keys.

    Args:
        more: the key to which the caller adds, so that the file may have another value.

    Raises:
        UsageError: the file has other values by now.
    """
    if path.exists():
        earlier = read_toml(path)
        if other := [key for key, value in keys.items() if key != more and earlier.get(key) != value]:
            raise UsageError(f"{path}: it has other {' and '.join(other)} by now; run it as a suite, or move it away")
        return tomlkit.parse(path.read_text(encoding="utf-8"))
    document = tomlkit.document()
    document.add(tomlkit.comment(f"Written by harness. Edit it, then: {command('run', path)}"))
    for key, value in keys.items():
        document.add(key, value)
    return document


def dataset_from(dataset: str, results: Path) -> str:
    """Return a dataset as a suite's file in that folder names it: a folder from there."""
    folder = folder_of(Path(split_size(dataset)[0]))
    if dataset.startswith((".", "/")) or (folder is not None and folder.is_dir()):
        relative = os.path.relpath(dataset, results)
        return relative if relative.startswith(".") else f"./{relative}"
    return dataset


def write_document(document: tomlkit.TOMLDocument, path: Path) -> None:
    """Write a suite's file; it is whole or absent."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with filesystem.atomic_write(path) as partial:
        partial.write_text(tomlkit.dumps(document), encoding="utf-8")


def are_systems(named: Sequence[Path]) -> bool:
    """Return whether a command's arguments name systems: none of them is a file, or named as one."""
    return not any(path.suffix == ".toml" or path.is_file() for path in named)
