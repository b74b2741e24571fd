"""Ledger of the inputs that this machine has put into the storage: an entry for each, in the cache.

What is in the storage already says nothing by itself: whoever may write there can have placed it.  So an input counts
as shipped only if this machine packed or checked its bytes, and the storage still states the checksum of then.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from harness import filesystem
from harness.driver.records import digest
from harness.errors import RemoteError
from harness.remote import records
from harness.remote.records import ShippedInput
from harness.remote.storage import ObjectState

# Version of the packed form; a change ships everything again.
_FORMAT = 2


@dataclass(frozen=True)
class LedgerEntry:
    """An object whose content this machine knows; ``checksum`` is what the storage stated of it (`ObjectState`)."""

    shipped: ShippedInput
    checksum: str

    def is_there(self, state: ObjectState | None) -> bool:
        """Return whether the storage still states that content."""
        wanted = (self.shipped.size_bytes, self.checksum)
        return state is not None and bool(self.checksum) and (state.size_bytes, state.checksum) == wanted


class Ledger:
    """The entries of a work place, by keys that name an input's content (a dataset's hashes, an image's digest)."""

    def __init__(self, cache: Path, place: str) -> None:
        self._folder, self._place = cache / "shipped", place

    def find(self, key: str) -> LedgerEntry | None:
        """Return the entry of a key."""
        with suppress(OSError, RemoteError):
            return records.read(LedgerEntry, str(self._file(key)), self._file(key).read_bytes())
        return None

    def note(self, key: str, entry: LedgerEntry) -> None:
        """Write an entry over an earlier one."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with filesystem.atomic_write(self._file(key)) as path:
            path.write_bytes(records.dump(entry))

    def _file(self, key: str) -> Path:
        return self._folder / f"{digest([_FORMAT, self._place, key])}.json"
