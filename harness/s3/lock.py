"""One writer of a suite's folder at a time, on all machines: an object that its holder renews while it lives.

All time is S3's own: an object's date against the date of the answer that shows it.  Each write names the version that
it replaces, so that of two who take over at once S3 lets one.
"""

from __future__ import annotations

import datetime
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass

from harness.aws import conditional
from harness.aws.conditional import said_at
from harness.aws.failures import aws_errors
from harness.aws.objects import Objects
from harness.errors import AwsError, StoreError
from harness.s3.names import LOCK

# A holder that gave no sign for so long is dead.
LEASE_S = 600
_RENEW_S = 120
_TRIES = 8
_MOST_BYTES = 1 << 16


@dataclass(frozen=True)
class _Found:
    """The lock as it lies there; a released one, or one that is no record of ours, has no owner."""

    etag: str
    owner: str | None
    since: str
    age_s: float
    released: bool = False
    holder: str | None = None


class Lock:
    """The lock of one suite's folder.

    Args:
        folder: the objects of the suite.
        owner: names this machine's mirror; no other has it.  A lock of this very name is taken over at once: its holder
            is dead, as our own machine lets one run at a time hold the mirror.
    """

    def __init__(self, folder: Objects, owner: str) -> None:
        self._folder = folder
        self._owner = owner
        # Of this process alone: a machine that was cloned has our owner's name too.
        self._holder = secrets.token_hex(8)
        self._since: str | None = None
        self._etag = ""
        self._renewed_s = 0.0
        self._lost = False
        self._turn = threading.Lock()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold it, and renew it meanwhile.

        Raises:
            StoreError: another run holds it.
            AwsError: it cannot be written.
        """
        self._acquire()
        ended = threading.Event()
        renewing = threading.Thread(target=self._renew_until, args=(ended,), name="s3-lock", daemon=True)
        renewing.start()
        try:
            yield
        finally:
            ended.set()
            renewing.join()
            with suppress(AwsError):  # it runs out by itself
                self._release()

    def confirm(self, *, now: bool = False) -> None:
        """Make sure that nobody took it over; ``now``: ask S3, however short ago it was asked.

        Raises:
            StoreError: somebody did.
            AwsError: S3 cannot be asked.
        """
        with self._turn:
            if self._lost or now or _clock_s() - self._renewed_s > 2 * _RENEW_S:
                self._renew()

    def _acquire(self) -> None:
        for _ in range(_TRIES):
            if self._write(None):
                return
            found = self._look()
            if found is None:
                continue
            free = found.released or found.owner == self._owner or found.age_s > LEASE_S
            if not free:
                raise StoreError(
                    f"{self._folder.place}: another run holds it since {found.since}; wait for its end (of a run that "
                    f"died: {LEASE_S // 60} minutes) or choose another --results"
                )
            if self._write(found.etag):
                return
        raise StoreError(f"{self._folder.place}: others take it again and again; try again when they are done")

    def _renew_until(self, ended: threading.Event) -> None:
        while not ended.wait(_RENEW_S):
            with suppress(AwsError, StoreError), self._turn:  # confirm() tells what is lost
                if not self._lost:
                    self._renew()

    def _renew(self) -> None:
        for _ in range(0 if self._lost else _TRIES):
            if self._write(self._etag):
                return
            # Our own write may have arrived, and its answer not.
            found = self._look()
            if found is None or (found.owner, found.holder) != (self._owner, self._holder):
                break
            self._etag = found.etag
        self._lost = True
        raise StoreError(
            f"{self._folder.place}: another run took it over, as this one gave no sign for {LEASE_S // 60} minutes; "
            "what was measured is kept here, and the same command goes on from there"
        )

    def _release(self) -> None:
        with self._turn:
            if not self._lost:
                self._write(self._etag, released=True)

    def _write(self, over: str | None, *, released: bool = False) -> bool:
        record = {"owner": self._owner, "holder": self._holder, "since": self._since, "released": released}
        record |= {"sign": str(time.time_ns())}
        before_s = _clock_s()
        written = conditional.put(self._folder, LOCK, json.dumps(record).encode(), over)
        if written is None:
            return False
        self._etag, self._renewed_s = written.etag, before_s
        if self._since is None and written.at is not None:
            self._since = _shown(written.at)
        return True

    def _look(self) -> _Found | None:
        place = self._folder.place
        try:
            with aws_errors(f"reading {place.below(LOCK)}"):
                answer = self._folder.client.get_object(Bucket=place.bucket, Key=place.key(LOCK))
                with closing(answer["Body"]) as body:
                    content = body.read(_MOST_BYTES)
        except AwsError as error:
            if error.code in ("NoSuchKey", "404"):
                return None
            raise
        modified = answer["LastModified"]
        now = said_at(answer) or modified
        try:
            record = json.loads(content)
            owner, since, released = record["owner"], record["since"] or _shown(modified), record["released"] is True
            holder = record.get("holder")
        except (ValueError, KeyError, TypeError):  # none of ours: nobody's once it is old
            owner, since, released, holder = None, _shown(modified), False, None
        age_s = (now - modified).total_seconds()
        return _Found(answer["ETag"].strip('"'), owner, str(since)[:40], age_s, released, holder)


def _clock_s() -> float:
    """Seconds that go on while the machine sleeps, as they do for everybody else."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _shown(moment: datetime.datetime) -> str:
    return f"{moment.astimezone(datetime.UTC):%Y-%m-%d %H:%M} UTC"
