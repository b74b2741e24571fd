"""The suite of a command line that names systems, a dataset and hardware in place of a file.

It is written next to the results, so that the next step is to edit it: the same suite measures nothing again.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

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
Writer = TypeVar("Writer")


def keep_if_usable(write: Callable[[Writer, Path], Path]) -> Callable[[Writer, Path], AbstractContextManager[Path]]:
    """Make a context of a method that writes a suite's file: a new one goes if it turns out to measure nothing."""

    @contextmanager
    @functools.wraps(write)
    def written(suite: Writer, results: Path) -> Iterator[Path]:
        before = set(results.glob("*.toml"))
        path = write(suite, results)
        try:
            yield path
        except HarnessError as error:
            # An engine, or a service, may run the next time.
            if path not in before and not path.with_suffix("").is_dir() and not isinstance(error, EngineError):
                path.unlink()
            raise

    return written


@dataclass(frozen=True)
class CommandSuite:
    """Systems by name on a dataset (a folder, a shipped one or an id), held to CPUs and memory (``"1GiB"``)."""

    systems: tuple[str, ...]
    dataset: str
    cpus: int
    memory: str

    @keep_if_usable
    def written(self, results: Path) -> Path:
        """Write the suite's file into the folder of results; return its path.

        A suite of an earlier command with this dataset and hardware gets the systems that it lacks, and keeps all
        else.

        Raises:
            UsageError: the memory cannot be read, or the file is another suite by now.
        """
        profile = self._profile()
        name = re.sub("[^a-z0-9._-]+", "-", dataset_name(self._dataset(results)).lower()).strip("-._") or "suite"
        path = results / f"{name if profile.name == DEFAULT_PROFILE else f'{name}-{profile.name}'}.toml"
        wanted = {"datasets": [self._dataset(results)], "profiles": [profile.name]}
        if not path.exists():
            document = self._document(path, wanted, profile)
        else:
            if any(read_toml(path).get(key) != value for key, value in wanted.items()):
                raise UsageError(
                    f"{path}: its datasets or profiles are others by now; run it as a suite, or move it away"
                )
            document = tomlkit.parse(path.read_text(encoding="utf-8"))
            held = [str(system) for system in document.get("systems", ())]
            document["systems"] = [*held, *(system for system in self.systems if system not in held)]
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

    def _dataset(self, results: Path) -> str:
        return dataset_from(self.dataset, results)

    def _document(self, path: Path, wanted: dict[str, list[str]], profile: Envelope) -> tomlkit.TOMLDocument:
        document = tomlkit.document()
        document.add(tomlkit.comment(f"Written by harness. Edit it, then: {command('run', path)}"))
        document.add("systems", list(self.systems))
        for key, value in wanted.items():
            document.add(key, value)
        if profile.name not in instances.hardware_profiles():
            document.add("hardware", {profile.name: {"cpus": self.cpus, "memory": self.memory}})
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
