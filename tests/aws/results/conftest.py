"""Results folders in S3, as the real S3 API serves them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harness import config
from harness.aws.clients import Connections, S3Uri
from harness.aws.objects import Objects
from harness.aws.results.mirror import FileSelection, MirroredFolder, sync
from harness.cli import main
from tests.aws import server
from tests.support.messages import messages


@dataclass
class Bucket:
    """A bucket, and the cache that mirrors it."""

    connections: Connections
    objects: Objects
    cache: Path
    endpoint: str

    def fill(self, folder: Path, prefix: str = "results") -> None:
        """Put every file of a folder there, as ``aws s3 sync`` would."""
        found = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock"]
        server.put(
            self.endpoint,
            "bucket",
            {f"{prefix}/{path.relative_to(folder).as_posix()}": path.read_bytes() for path in found},
        )

    def names(self) -> list[str]:
        return [each.name for each in self.objects.list()]

    def place(self, prefix: str = "results") -> MirroredFolder:
        return MirroredFolder(S3Uri("bucket", prefix), self.cache)

    def sync(
        self, prefix: str = "results", wants: FileSelection = FileSelection.ALL, *, thorough: bool = False
    ) -> None:
        with messages() as self.messages:
            sync(self.place(prefix), self.connections, wants, thorough=thorough)


@pytest.fixture
def bucket(aws: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """An empty bucket, called so, and a cache of the test's own."""
    cache = tmp_path / "cache"
    monkeypatch.setenv(config.CACHE_VARIABLE, str(cache))
    connections = Connections()
    connections.client("s3").create_bucket(Bucket="bucket")
    return Bucket(connections, Objects(connections, S3Uri("bucket")), cache, aws)


@pytest.fixture
def harness() -> Callable[..., Result]:
    """The command line."""

    def call(*arguments: str | Path) -> Result:
        return CliRunner().invoke(main, [str(each) for each in arguments], catch_exceptions=False)

    return call


def tree(folder: Path) -> dict[str, bytes]:
    """All files of a store below a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }


@pytest.fixture
def requests(aws: str) -> Iterator[list[str]]:
    """The operations of S3 that were called since."""
    from botocore.client import BaseClient

    called: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        usual = BaseClient._make_api_call

        def counted(self: BaseClient, operation_name: str, api_params: dict[str, object]) -> object:
            called.append(operation_name)
            return usual(self, operation_name, api_params)

        patch.setattr(BaseClient, "_make_api_call", counted)
        yield called
