"""An engine that does what its parameters say, right or wrong."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from harness.driver import mixed
from harness.driver.adapter import Adapter, Corpus, Document, QueryFailed
from harness.driver.records import Filter, Hit, fits


class Planted(Adapter):
    """``misdeed`` names what goes wrong, and ``at`` the search (counted from 0) at which it does."""

    def build(self, corpus: Corpus, index_dir: Path, progress: Callable[[int], None]) -> None:
        """Keep the documents' words by id."""
        self._misbehave_in_build(index_dir)
        self._resume(index_dir)
        words = {document.doc_id: f"{document.title} {document.text}".lower().split() for document in corpus}
        progress(len(words))
        (index_dir / "words.json").write_text(json.dumps(words), encoding="utf-8")
        fields = {document.doc_id: dict(document.metadata) for document in corpus}
        (index_dir / "fields.json").write_text(json.dumps(fields), encoding="utf-8")

    def resumed_s(self) -> float:
        """What the earlier attempt says it took, times how much it lies."""
        return self._resumed_s * float(self.params.get("lies", 1))

    def load(self, index_dir: Path) -> None:
        """Read the index; hold as much memory as asked for."""
        self._words = {key: set(value) for key, value in json.loads((index_dir / "words.json").read_text()).items()}
        self._fields = json.loads((index_dir / "fields.json").read_text())
        self._searches = self._updates = 0
        self._deleted: set[str] = set()  # by an update
        self._inserted: dict[str, tuple[float, set[str]]] = {}  # since when, and its words
        self._held = os.urandom(1 << 20) * int(self.params.get("hold_mib", 0))
        if self.params.get("misdeed") == "raise_in_load":
            raise RuntimeError("the planted engine does not load")

    def search(self, query: str, k: int) -> Sequence[Hit]:
        """Count common words; ties by id."""
        number, self._searches = self._searches, self._searches + 1
        # A cold system: the first search takes that much longer, the second half of it, and so on.
        slope_s = float(self.params.get("cold_s", 0)) * 0.5 ** (number / 2)
        time.sleep(float(self.params.get("service_s", 0)) + (slope_s if slope_s > 1e-4 else 0))
        self._last = query
        hits = self._ranked(query, k)
        if number >= int(self.params.get("at", 0)):
            return self._misbehave(hits, k)
        return hits

    def search_filtered(self, query: str, k: int, wanted: Filter) -> Sequence[Hit]:
        """Rank the documents that fit, unless ``filters`` says otherwise."""
        how = self.params.get("filters")
        if how == "unknown":
            return super().search_filtered(query, k, wanted)
        hits = self._ranked(query, len(self._words))
        fitting = [hit for hit in hits if how == "ignored" or fits(self._fields[hit.doc_id], wanted)]
        return fitting[: k - 1 if how == "lost" else k]

    def begin_updates(self) -> None:
        """Be ready, unless it knows no updates."""
        if self.params.get("updates") == "unknown":
            raise ValueError("Planted knows no updates; it was told so")
        mixed.GIVE_UP_NS = 1_000_000_000  # tests do not wait ten seconds for what never comes

    def insert(self, documents: Sequence[Document]) -> None:
        """Keep the documents, unless ``updates`` says otherwise."""
        how = self.params.get("updates")
        self._fail(how)
        time.sleep(0.2 if how == "stalled" else 0)
        for document in documents:
            if how == "lost":
                continue
            words = set(f"{document.title} {document.text}".lower().split())
            seen_at = time.monotonic() + (float(self.params.get("slow_s", 0)) if how == "slow" else 0)
            self._inserted[document.doc_id] = (seen_at, words)
            self._deleted.discard(document.doc_id)

    def delete(self, doc_ids: Sequence[str]) -> None:
        """Forget the documents, unless ``updates`` says otherwise."""
        how = self.params.get("updates")
        self._fail(how)
        for doc_id in doc_ids:
            if how != "kept":
                self._inserted.pop(doc_id, None)
                self._deleted.add(doc_id)

    def _fail(self, how: object) -> None:
        self._updates += 1
        if how == "failing" and self._updates % 3 == 0:
            raise QueryFailed("planted", timed_out=self._updates % 2 == 0)

    def search_batch(self, queries: Sequence[str], k: int) -> Sequence[Sequence[Hit]]:
        """Answer one after the other; the last first where ``misdeed`` says so."""
        answers = [self.search(query, k) for query in queries]
        return answers[::-1] if self.params.get("misdeed") == "swapped" else answers

    def shares_batches(self) -> bool:
        """No query shares its batch's stages."""
        return False

    def _ranked(self, query: str, k: int) -> list[Hit]:
        wanted = set(query.lower().split())
        found = sorted(((len(wanted & words), doc_id) for doc_id, words in self._present()), reverse=True)[:k]
        return [Hit(doc_id, float(score)) for score, doc_id in found]

    def _present(self) -> Iterator[tuple[str, set[str]]]:
        now, inserted = time.monotonic(), dict(self._inserted)
        for doc_id, words in self._words.items():
            if doc_id in inserted:
                if inserted[doc_id][0] <= now:
                    yield doc_id, inserted[doc_id][1]
            elif doc_id not in self._deleted:
                yield doc_id, words

    def threads(self) -> dict[str, int]:
        """One, unless it boasts."""
        return {"planted": int(self.params.get("threads", 1))}

    def libraries(self) -> dict[str, str]:
        """Python is all there is."""
        return {"python": sys.version.split()[0]}

    def _misbehave(self, hits: list[Hit], k: int) -> Sequence[Hit]:
        misdeed = self.params.get("misdeed")
        if misdeed == "raise":
            raise ValueError("planted\nin two lines")
        if misdeed == "hang":
            time.sleep(3600)
        if misdeed == "exit":
            os._exit(0)
        if misdeed == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if misdeed == "oom":
            os.urandom(1 << 20) * 4096
        if misdeed == "oom_child":
            subprocess.run([sys.executable, "-c", "b'x' * (4 << 30)"], check=False)
        if misdeed == "flood":
            while True:
                sys.stdout.write("x" * 65536)
        if misdeed == "fork_bomb":
            children = []
            while True:
                children.append(subprocess.Popen(["sleep", "60"]))
        if misdeed == "network":
            import socket

            socket.create_connection(("192.0.2.1", 80), timeout=3)
        if misdeed == "write_root":
            Path("/opt/adapter/left-behind").write_text("x", encoding="utf-8")
        if misdeed == "write_index":
            Path(os.environ.get("HARNESS_INDEX", "/index"), "left-behind").write_text("x", encoding="utf-8")
        if misdeed == "big_file":
            with Path(os.environ.get("HARNESS_JOB", "/job"), "out", "big").open("wb") as file:
                file.truncate(1 << 40)
        if misdeed in ("some_files", "many_files"):  # as much as a job may leave, or more than that
            for file_number in range(8 if misdeed == "some_files" else 10_000):
                path = Path(os.environ.get("HARNESS_JOB", "/job"), "out", str(file_number))
                path.write_bytes(b"x" * (1 << 20))
        wrong = {
            "reversed": [Hit(hit.doc_id, -hit.score) for hit in reversed(hits)],
            "constant": [Hit(f"{'dm'[rank // 10]}{rank % 10}", -float(rank)) for rank in range(k)] if k <= 20 else [],
            "loose_ties": sorted(hits[::-1] if k % 2 else hits, key=lambda hit: -hit.score),
            "always_two": hits[:2],
            "always_ten": [Hit(hit.doc_id, hit.score) for hit in self._ranked(self._last, 10)],
            "nan": [Hit(hit.doc_id, float("nan")) for hit in hits],
            "duplicate": [hits[0], *hits[:-1]],
            "unknown": [Hit("no-such-document", 99.0), *hits[:-1]],
            "too_few": hits[:-1],
            "too_many": [*hits, Hit("more", -1.0)],
            "rising": [Hit(hit.doc_id, float(rank)) for rank, hit in enumerate(hits)],
            "huge": [Hit("x" * (1 << 30), 99.0), *hits[1:]] if misdeed == "huge" else [],
            "million": [Hit(str(rank), -float(rank)) for rank in range(10**6)] if misdeed == "million" else [],
            "none": None,
            "fickle": hits[self._searches % 2 :] + hits[: self._searches % 2] if misdeed == "fickle" else [],
        }
        if misdeed == "fickle":
            return [Hit(hit.doc_id, 1.0) for hit in wrong["fickle"] or []]
        return wrong.get(str(misdeed), hits)

    _resumed_s = 0.0

    def _resume(self, index_dir: Path) -> None:
        """Stop half-way at the first attempt, in the way that ``build_misdeed`` names; go on at the second."""
        kept, how = index_dir / ".building" / "half", self.params.get("build_misdeed")
        if how == "advance":
            kept.parent.mkdir(exist_ok=True)
            (kept.parent / str(len(list(kept.parent.iterdir())))).touch()
            raise RuntimeError("the planted engine crashes a little further on")
        if kept.exists():
            if how == "stumble":
                raise RuntimeError("the planted engine stumbles on what it left")
            self._resumed_s = float(kept.read_text())
            shutil.rmtree(kept.parent)
        elif how in ("stop", "die", "stumble"):
            kept.parent.mkdir()
            kept.write_text("0.01")
            if how == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("the planted engine stops half-way")

    def _misbehave_in_build(self, index_dir: Path) -> None:
        misdeed = self.params.get("build_misdeed")
        if misdeed == "raise":
            raise RuntimeError("the planted engine does not build")
        if misdeed == "link":
            (index_dir / "passwd").symlink_to("/etc/passwd")
        if misdeed == "oom":
            os.urandom(1 << 20) * 8192
        if misdeed == "spin":  # no misdeed, but long enough for the kernel's counters
            until_s = time.perf_counter() + 1.5
            while time.perf_counter() < until_s:
                pass


ENGINE = Planted
