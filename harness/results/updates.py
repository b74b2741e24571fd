"""The stored updates of a job of scenario ``mixed``: ``updates.tsv.gz``, one update or check a line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.driver.output import ERROR, TIMED_OUT, UNSENT
from harness.driver.update_plan import CHECK, DELETE, INSERT
from harness.untrusted import read_fields, whole_number

_MAX_LINE_BYTES = 4096
_MAX_LINES = 2_000_000
_MOST_ID_CHARACTERS = 256
_MOST_NS = 1 << 62
_MISSING = "-"
_FAILURES = (ERROR, TIMED_OUT, UNSENT)


@dataclass(frozen=True)
class Update:
    """One insert or delete during the queries, or one check that a document was found after them.

    ``scheduled_ns`` counts from the start of the trial, ``latency_ns`` from the schedule, ``service_ns`` from when it
    was sent; a check has none of them.  ``watched``: searches looked for it; ``seen_ns`` says when one saw the change,
    counted from when it was sent (a check: from when all were inserted again); ``None``: none did.  ``failed`` is the
    driver's ``ERROR`` or ``TIMED_OUT``, or ``UNSENT``: its turn had not come when the last query had its answer, so
    that the latency is what it had waited by then.
    """

    kind: str
    doc_id: str
    scheduled_ns: int | None = None
    latency_ns: int | None = None
    service_ns: int | None = None
    watched: bool = False
    seen_ns: int | None = None
    failed: int | None = None


def check(update: Update) -> Update:
    """Return an update that can be true.

    Raises:
        ValueError: it contradicts itself; the text says how.
    """
    times = (update.scheduled_ns, update.latency_ns, update.service_ns)
    for name in ("scheduled_ns", "latency_ns", "service_ns", "seen_ns"):
        value = getattr(update, name)
        if value is not None and (type(value) is not int or not 0 <= value < _MOST_NS):
            raise ValueError(f"{name} {str(value)[:40]} is not a whole number of 0 or more")
    if update.kind not in (INSERT, DELETE, CHECK):
        raise ValueError(f"kind {str(update.kind)[:40]!r}, must be {INSERT}, {DELETE} or {CHECK}")
    if not isinstance(update.doc_id, str) or not 0 < len(update.doc_id) <= _MOST_ID_CHARACTERS:
        raise ValueError(f"document id {str(update.doc_id)[:40]!r}, must have 1 to {_MOST_ID_CHARACTERS} characters")
    if not update.doc_id.isprintable() or " " in update.doc_id:
        raise ValueError(f"document id {update.doc_id[:40]!r} has blanks or control characters")
    if update.kind == CHECK:
        if times != (None, None, None) or update.failed is not None or not update.watched:
            raise ValueError("a check has the time when the document was found, and no other")
        return update
    if update.scheduled_ns is None or update.latency_ns is None or update.service_ns is None:
        raise ValueError(f"an {update.kind} needs scheduled_ns, latency_ns and service_ns")
    if update.latency_ns <= 0 or update.service_ns > update.latency_ns:
        raise ValueError(f"service_ns {update.service_ns} is longer than latency_ns {update.latency_ns}")
    if update.failed is not None and update.failed not in _FAILURES:
        raise ValueError(f"failed {str(update.failed)[:40]!r} is not possible here")
    if update.failed is not None and update.watched:
        raise ValueError("a failed update cannot be seen")
    if not update.watched and update.seen_ns is not None:
        raise ValueError("it was seen, and not watched")
    return update


def render(updates: Iterable[Update]) -> bytes:
    """Return the content of the file."""
    return "".join("\t".join(_fields(update)) + "\n" for update in updates).encode("utf-8")


def _fields(update: Update) -> list[str]:
    numbers = (update.scheduled_ns, update.latency_ns, update.service_ns)
    texts = [_MISSING if number is None else str(number) for number in (*numbers, update.seen_ns, update.failed)]
    return [update.kind, update.doc_id, *texts, str(int(update.watched))]


def read(path: Path) -> tuple[Update, ...]:
    """Read a gzipped file of :func:`render`.

    Raises:
        FileError: it is damaged; names the file and the line.
    """
    return tuple(read_fields(path, _update, _MAX_LINE_BYTES, _MAX_LINES))


def _update(fields: list[str]) -> Update:
    if len(fields) != 8:
        raise ValueError(f"has {len(fields)} fields, must have 8")
    kind, doc_id, *texts, watched = fields
    scheduled_ns, latency_ns, service_ns, seen_ns, failed = (
        None if text == _MISSING else whole_number(text) for text in texts
    )
    if watched not in ("0", "1"):
        raise ValueError(f"watched is {watched[:40]!r}, must be 0 or 1")
    return check(Update(kind, doc_id, scheduled_ns, latency_ns, service_ns, watched == "1", seen_ns, failed))
