"""Faults found in review: what a hostile box, an outage or a second command does to the watching one."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from harness.errors import AwsError
from harness.remote import home, layout
from harness.remote.records import IndexBuild, Input, dump
from tests.remote.test_watch import JOBS, ROLE, Indexes, Scene, packed, part, part_job, scene

__all__ = ["scene"]


@pytest.mark.parametrize(
    "record",
    [b"junk", b" " * (17 << 20), dump(Input("inputs/images/stranger.tar.gz", "0" * 64, 1))],
    ids=["junk", "large", "stranger's"],
)
def test_a_forged_record_of_an_index_stops_nobody(scene: Scene, record: bytes) -> None:
    watch = scene.watch(part("p", 0, builds=(IndexBuild("ab-d", "a", "d"),)), part("q", 1))
    watch._tick()
    scene.box("p").put(f"{layout.index('ab-d')}.json", record)
    scene.hand_over("q", 1)
    watch._tick()
    assert len(scene.stored) == 1


def test_an_index_is_adopted_only_with_the_content_that_its_record_names(scene: Scene) -> None:
    """Else no box of any later run can use that index, and none builds it anew."""
    watch = scene.watch(part("p", builds=(IndexBuild("ab-d", "a", "d"),)))
    watch._tick()
    sha256, folder = hashlib.sha256(b"index").hexdigest(), f"boxes/{ROLE}:p/indexes"
    scene.work.put(f"{folder}/ab-d.{sha256[:12]}.tar.gz", b"other")
    scene.box("p").put(f"{layout.index('ab-d')}.json", dump(Input(f"{folder}/ab-d.{sha256[:12]}.tar.gz", sha256, 5)))
    with contextlib.suppress(AwsError):
        watch._tick()
    assert Indexes(scene.work).find_index("ab-d") is None


def tar(*entries: tuple[str, bytes | None]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        for name, content in entries:
            info = tarfile.TarInfo(name)
            if content is None:
                info.type = tarfile.DIRTYPE
            else:
                info.size = len(content)
            archive.addfile(info, io.BytesIO(content or b""))
    return target.getvalue()


@pytest.mark.parametrize("names", [("log.txt.gz/",), ("log.txt.gz/", "log.txt.gz")], ids=["folder", "twice"])
def test_a_folder_in_a_jobs_place_is_a_damaged_job(scene: Scene, names: tuple[str, ...]) -> None:
    watch = scene.watch(part("p", 0), part("q", 1))
    watch._tick()
    whole = {}
    with tarfile.open(fileobj=io.BytesIO(packed(JOBS[0].spec))) as honest:
        for each in honest:
            whole[each.name] = honest.extractfile(each).read()  # type: ignore[union-attr]
    forged = tar(
        *((name.rstrip("/"), None if name.endswith("/") else b"") for name in names),
        *((name, content) for name, content in whole.items() if name != "log.txt.gz"),
    )
    scene.box("p").put_new(layout.job(part_job(0).key), forged)
    scene.hand_over("q", 1)
    watch._tick()
    assert len(scene.stored) == 1 and len(watch._damaged) == 1


BOMB = """
import gzip, io, resource, sys, tarfile, tempfile
from pathlib import Path
from harness.errors import AwsError
from harness.remote import home
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
with tempfile.TemporaryDirectory() as folder:
    try:
        home.unpack(Path(sys.argv[1]).read_bytes(), Path(folder))
    except AwsError as error:
        print(error)
"""


def test_a_bomb_in_a_tars_extended_header_is_refused(tmp_path: Path) -> None:
    """A few MiB become GiB in memory: headers count, not files alone."""
    size = 4 << 30
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, size
    with gzip.open(tmp_path / "bomb", "wb", compresslevel=1) as file:
        file.write(header.tobuf(tarfile.USTAR_FORMAT))
        for _ in range(size >> 24):
            file.write(bytes(1 << 24))
    assert (tmp_path / "bomb").stat().st_size < home.MOST_BYTES
    done = subprocess.run(
        [sys.executable, "-c", BOMB, str(tmp_path / "bomb")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-300:]


@pytest.mark.parametrize("name", [layout.BEAT, layout.END, layout.index("ab-d") + ".json"])
def test_an_object_in_an_archive_stops_nobody(scene: Scene, name: str) -> None:
    """Whoever may put an object chooses its storage class, and a key of its own: then nobody reads it."""
    watch = scene.watch(part("p", 0, builds=(IndexBuild("ab-d", "a", "d"),)), part("q", 1))
    watch._tick()
    place = scene.box("p").place
    scene.work.client.put_object(Bucket=place.bucket, Key=place.key(name), Body=b"{}", StorageClass="GLACIER")
    scene.hand_over("q", 1)
    watch._tick()
    assert len(scene.stored) == 1
