"""Lock of a suite's folder: one writer on all machines, by an object that its holder renews while it lives.

All time is S3's own: an object's date against the date of the answer that shows it. Each write names the version that
it replaces, so that S3 lets one of two who take over at once.
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

# A holder that did not renew for this long is dead.
LEASE_S = 600
_RENEW_S = 120
_TRIES = 8
_MAXIMUM_BYTES = 1 << 16


@dataclass(frozen=True)
class _Found:
    """The lock object as it is; without an owner where it is damaged."""

    etag: str
    owner: str | None
    since: str
    age_s: float
    released: bool
    holder: str | None


class Lock:
    """The lock of one suite's folder.

    Args:
        folder: the objects of the suite.
        owner: names this machine's mirror. A lock of the same name is taken over at once: its holder is dead, because
            a machine lets one run at a time hold its mirror.
    """

    def __init__(self, folder: Objects, owner: str) -> None:
        self._folder = folder
        self._owner = owner
        # Of this process alone: a clone of this machine has the same owner.
        self._holder = secrets.token_hex(8)
        self._since: str | None = None
        self._etag = ""
        self._renewed_s = 0.0
        self._lost = False
        self._turn = threading.Lock()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold it, and renew it meanwhile; StoreError: another run holds it."""
        self._acquire()
        ended = threading.Event()
        renewing = threading.Thread(target=self._renew_until, args=(ended,), name="s3-lock", daemon=True)
        renewing.start()
        try:
            yield
        finally:
            ended.set()
            renewing.join()
            with suppress(AwsError), self._turn:  # it expires by itself
                if not self._lost:
                    self._write(self._etag, released=True)

    def confirm(self, *, now: bool = False) -> None:
        """Raise StoreError if another run took it over; ``now``: ask S3 even if it was asked just before."""
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
            if not (found.released or found.owner == self._owner or found.age_s > LEASE_S):
                raise StoreError(
                    f"{self._folder.place}: another run holds it since {found.since}; wait for its end (of a run that "
                    f"died: {LEASE_S // 60} minutes) or choose another --results"
                )
            if self._write(found.etag):
                return
        raise StoreError(f"{self._folder.place}: other runs take it again and again; try again when they are done")

    def _renew_until(self, ended: threading.Event) -> None:
        while not ended.wait(_RENEW_S):
            with suppress(AwsError, StoreError), self._turn:  # confirm() raises
                if not self._lost:
                    self._renew()

    def _renew(self) -> None:
        for _ in range(0 if self._lost else _TRIES):
            if self._write(self._etag):
                return
            # Our own write may have arrived without its answer.
            found = self._look()
            if found is None or (found.owner, found.holder) != (self._owner, self._holder):
                break
            self._etag = found.etag
        self._lost = True
        raise StoreError(
            f"{self._folder.place}: another run took it over, as this one gave no sign for {LEASE_S // 60} minutes; "
            "what was measured is kept here, and the same command goes on from there"
        )

    def _write(self, over: str | None, *, released: bool = False) -> bool:
        record = {"owner": self._owner, "holder": self._holder, "since": self._since, "released": released}
        record["sign"] = str(time.time_ns())  # another content, so another ETag, each time
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
                    content = body.read(_MAXIMUM_BYTES)
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
        except (ValueError, KeyError, TypeError):  # not written by harness: free once it is old
            owner, since, released, holder = None, _shown(modified), False, None
        age_s = (now - modified).total_seconds()
        return _Found(answer["ETag"].strip('"'), owner, str(since)[:40], age_s, released, holder)


def _clock_s() -> float:
    """Return seconds of a clock that goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _shown(moment: datetime.datetime) -> str:
    return f"{moment.astimezone(datetime.UTC):%Y-%m-%d %H:%M} UTC"
