"""The interface by which a store publishes what it writes; :mod:`harness.s3.publish` has it for S3."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol


class Shelf(Protocol):
    """A place that takes results before they count as stored in the folder."""

    @property
    def name(self) -> str:
        """The place as people name it, on every machine the same."""

    def held(self, folder: Path) -> AbstractContextManager[None]:
        """Hold a suite's folder against all other machines; then it has what these have stored."""

    def keep(self, path: Path, content: bytes) -> None:
        """Take an input that is to lie at ``path``."""

    def into_place(self, whole: Path, target: Path) -> None:
        """Take a job's folder, and then rename it to ``target``."""

    def write(self, path: Path, content: bytes) -> None:
        """Take a file that may be written over, which is to lie at ``path``."""
