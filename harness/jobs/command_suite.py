"""The suite of a command line that names systems, a dataset and hardware in place of a file.

It is written next to the results, so that the next step is to edit it: the same suite measures nothing again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import tomlkit

from harness import filesystem
from harness.commands import command
from harness.config import read_toml
from harness.datasets import dataset_name, folder_of
from harness.driver.records import Envelope
from harness.errors import EngineError, HarnessError, UsageError
from harness.pricing import instances

DEFAULT_PROFILE = "cpu1-mem1"


@dataclass(frozen=True)
class CommandSuite:
    """Systems by name on a dataset (a folder, a shipped one or an id), held to CPUs and memory (``"1GiB"``)."""

    systems: tuple[str, ...]
    dataset: str
    cpus: int
    memory: str

    @contextmanager
    def written(self, results: Path) -> Iterator[Path]:
        """Write the suite's file as :meth:`write`; remove a new one if an error says that nothing can be measured."""
        before = set(results.glob("*.toml"))
        path = self.write(results)
        try:
            yield path
        except HarnessError as error:
            # An engine may run the next time.
            if path not in before and not path.with_suffix("").is_dir() and not isinstance(error, EngineError):
                path.unlink()
            raise

    def write(self, results: Path) -> Path:
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
        results.mkdir(parents=True, exist_ok=True)
        with filesystem.atomic_write(path) as partial:
            partial.write_text(tomlkit.dumps(document), encoding="utf-8")
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
        """Return the dataset as the suite's file names it: a folder from there."""
        if self.dataset.startswith((".", "/")) or folder_of(Path(self.dataset)).is_dir():
            relative = os.path.relpath(self.dataset, results)
            return relative if relative.startswith(".") else f"./{relative}"
        return self.dataset

    def _document(self, path: Path, wanted: dict[str, list[str]], profile: Envelope) -> tomlkit.TOMLDocument:
        document = tomlkit.document()
        document.add(tomlkit.comment(f"Written by harness. Edit it, then: {command('run', path)}"))
        document.add("systems", list(self.systems))
        for key, value in wanted.items():
            document.add(key, value)
        if profile.name not in instances.hardware_profiles():
            document.add("hardware", {profile.name: {"cpus": self.cpus, "memory": self.memory}})
        return document


def are_systems(named: Sequence[Path]) -> bool:
    """Return whether a command's arguments name systems: none of them is a file, or named as one."""
    return not any(path.suffix == ".toml" or path.is_file() for path in named)
