"""Lock of a suite's folder: one writer on all machines, by an object that its holder renews while it lives.

Age is by S3's own clock: an object's date against the date of the answer that shows it. Each write names the version
that it replaces, so that S3 lets one of two who take over at once.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from harness.aws.objects import Objects, age, missing_ok
from harness.aws.results.names import LOCK
from harness.errors import AwsError, StoreError

# A holder that did not renew for this long is dead.
LEASE_S = 600
_RENEW_S = 120
_TRIES = 8
_MAXIMUM_BYTES = 1 << 16


@dataclass(frozen=True)
class _Found:
    """The lock object in S3; its record is empty if harness did not write it."""

    etag: str
    age_s: float
    modified: str
    record: dict[str, Any]


class Lock:
    """The lock of one suite's folder.

    Args:
        owner: names this machine's mirror. A lock of the same name is taken over at once: its holder is dead, because
            a machine lets one run at a time hold its mirror.
    """

    def __init__(self, folder: Objects, owner: str) -> None:
        self._folder = folder
        # The holder is of this process alone: a clone of this machine has the same owner.
        self._record = {"owner": owner, "holder": secrets.token_hex(8), "since": _shown(datetime.now(UTC))}
        self._etag = ""
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

    def confirm(self) -> None:
        """Renew it; StoreError: another run took it over."""
        with self._turn:
            self._renew()

    def _acquire(self) -> None:
        for _ in range(_TRIES):
            if self._write(None):
                return
            found = self._look()
            if found is None:
                continue
            mine, released = found.record.get("owner") == self._record["owner"], found.record.get("released") is True
            if not (mine or released or found.age_s > LEASE_S):
                since = str(found.record.get("since") or found.modified)[:40]
                raise StoreError(
                    f"{self._folder.place}: another run holds it since {since}; wait for its end (of a run that died: "
                    f"{LEASE_S // 60} minutes) or choose another --results"
                )
            if self._write(found.etag):
                return
        raise StoreError(f"{self._folder.place}: other runs take it again and again; try again when they are done")

    def _renew_until(self, ended: threading.Event) -> None:
        while not ended.wait(_RENEW_S):
            with suppress(AwsError, StoreError):  # the run's own confirm() raises
                self.confirm()

    def _renew(self) -> None:
        for _ in range(0 if self._lost else _TRIES):
            if self._write(self._etag):
                return
            # Our own write may have arrived without its answer.
            found = self._look()
            if found is None or found.record.get("holder") != self._record["holder"]:
                break
            self._etag = found.etag
        self._lost = True
        raise StoreError(
            f"{self._folder.place}: another run took it over, as this one gave no sign for {LEASE_S // 60} minutes; "
            "what was measured is kept here, and the same command goes on from there"
        )

    def _write(self, etag: str | None, *, released: bool = False) -> bool:
        # The sign makes the content, and so the ETag, another one each time.
        record = {**self._record, "released": released, "sign": secrets.token_hex(8)}
        written = self._folder.put_if(LOCK, json.dumps(record).encode(), etag)
        self._etag = written or self._etag
        return written is not None

    def _look(self) -> _Found | None:
        with missing_ok(), self._folder.reading(LOCK) as answer:
            try:
                record = json.loads(answer["Body"].read(_MAXIMUM_BYTES))
            except (ValueError, RecursionError):
                record = None
            return _Found(
                answer["ETag"].strip('"'),
                age(answer).total_seconds(),
                _shown(answer["LastModified"]),
                record if isinstance(record, dict) else {},
            )
        return None


def _shown(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
