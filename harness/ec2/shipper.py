"""What boxes need, brought to the work place; the one thing here that wants a container engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from harness.aws.objects import Objects
from harness.datasets import Dataset
from harness.indexes import Index
from harness.launch.base import Prepared, Report
from harness.remote import layout, shipping
from harness.remote.records import Input, ShippedImage

if TYPE_CHECKING:
    from pathlib import Path

    from harness.launch.docker import DockerLauncher


class Shipper(Protocol):
    """Brings things to S3; what is there already is left."""

    def bundle(self) -> Input:
        """Harness itself."""

    def image(self, prepared: Prepared) -> ShippedImage:
        """A system's image."""

    def dataset(self, dataset: Dataset) -> Input:
        """A dataset."""

    def index(self, key: str, index: Index) -> Input:
        """An index of the cache."""

    def find_index(self, key: str, *, keep: bool = False) -> Input | None:
        """An index that is there; ``keep``: for boxes, which need it for some days."""

    def index_keys(self) -> set[str]:
        """Keys of those that may be there: one look for all."""


class S3Shipper:
    """The real one."""

    def __init__(self, work: Objects, launcher: DockerLauncher, cache: Path, say: Report) -> None:
        """See that the engine's images are such as boxes can use, before anything is asked or paid.

        Raises:
            EngineError: it does not answer.
            UsageError: they are not.
        """
        shipping.check_engine(launcher.client)
        self._work = work
        self._launcher = launcher
        self._cache = cache
        self._say = say

    def bundle(self) -> Input:
        """Harness itself."""
        return shipping.lasting(self._work, shipping.bundle(self._work, self._say, cache=self._cache))

    def image(self, prepared: Prepared) -> ShippedImage:
        """A system's image."""
        shipped = shipping.image(self._work, self._launcher.client, prepared, self._say, cache=self._cache)
        if shipped.file is not None:
            shipping.lasting(self._work, shipped.file)
        return shipped

    def dataset(self, dataset: Dataset) -> Input:
        """A dataset."""
        return shipping.lasting(self._work, shipping.dataset(self._work, dataset, self._cache, self._say))

    def index(self, key: str, index: Index) -> Input:
        """An index of the cache."""
        return shipping.lasting(self._work, shipping.index(self._work, key, index, self._say, cache=self._cache))

    def find_index(self, key: str, *, keep: bool = False) -> Input | None:
        """An index that is there; ``keep``: for boxes, which need it for some days."""
        found = shipping.find_index(self._work, key)
        if keep and found is not None:
            shipping.lasting(self._work, found)
        elif keep:
            shipping.drop_stale_index(self._work, key)
        return found

    def index_keys(self) -> set[str]:
        """Keys of those that may be there: one look for all."""
        return shipped_indexes(self._work)


def shipped_indexes(work: Objects) -> set[str]:
    """Keys of the indexes that something lies under in S3.

    Raises:
        AwsError: it cannot be listed.
    """
    names = (each.name.rpartition("/")[2] for each in work.list(f"{layout.INDEXES}/"))
    return {name.partition(".")[0] for name in names if name.endswith(".json")}
