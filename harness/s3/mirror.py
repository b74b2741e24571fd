"""S3 -> the mirror: lists every object, fetches what is new, removes what has gone."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum

from harness import leftovers, origins, seals, stored_jobs
from harness.aws.connections import CONNECTIONS, Connections
from harness.aws.objects import Objects, Stored
from harness.aws.uri import S3Uri
from harness.errors import AwsError
from harness.result import ANSWER_DEPTHS, JUDGED_HITS
from harness.s3 import index
from harness.s3.fetching import Moved
from harness.s3.job import Job, Landing
from harness.s3.listing import listed
from harness.s3.names import INPUTS, Place, Tree, home_of, kept, suite_of
from harness.s3.seen import Seen

# An index is asked from so many results on that would each be a request, and made anew from so many on.
_ASK_INDEX_FROM = 16
_MAKE_INDEX_FROM = 100
# How often a listing is made anew because something changed while it was read.
_ROUNDS = 4
_SHOWN = 3


class Wants(Enum):
    """Which files of a job are fetched: its record, all that tables are made of, or all."""

    RECORDS = frozenset({stored_jobs.RESULT})
    FIGURES = RECORDS | {stored_jobs.SAMPLES, stored_jobs.RUN, JUDGED_HITS, ANSWER_DEPTHS}
    ALL = FIGURES | {stored_jobs.LOG}


@dataclass
class Watch:
    """Who is told: ``say`` takes a line, ``progress`` how many of how many jobs are fetched."""

    say: Callable[[str], None] = lambda _: None
    progress: Callable[[int, int], None] = lambda _done, _total: None


@dataclass
class Synced:
    """What a place holds, and how many results were fetched one by one, by suite."""

    tree: Tree
    one_by_one: dict[str, int] = field(default_factory=dict)


def sync(
    place: Place, connections: Connections, wants: Wants, watch: Watch | None = None, *, thorough: bool = False
) -> Synced:
    """Bring the mirror of a place up to date.

    Args:
        place: what to mirror; where it is a part of a suite, the suite's judgements and samples come too.
        connections: to S3.
        wants: which files of each job; what is there already stays.
        watch: is told of what takes long.
        thorough: read what the mirror has, and do not rely on what is remembered of it.

    Raises:
        AwsError: there is no such bucket, it may not be read, or it is not reached.
    """
    watch = watch or Watch()
    for _ in range(_ROUNDS):
        try:
            with _pool() as pool:
                return _Round(place, connections, wants, watch, pool).run(thorough)
        except Moved:
            continue
    raise AwsError(f"{place.uri}: changes again and again while it is read; wait for whoever writes there", "Changing")


@contextmanager
def _pool() -> Iterator[Executor]:
    """Threads that do not go on with what waits once something went wrong."""
    pool = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="s3")
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


class _Round:
    """One listing, and all that follows from it."""

    def __init__(self, place: Place, connections: Connections, wants: Wants, watch: Watch, pool: Executor) -> None:
        self._place = place
        self._objects = Objects(connections, S3Uri(place.uri.bucket))
        self._wants = wants
        self._watch = watch
        self._pool = pool

    def run(self, thorough: bool) -> Synced:
        # Before the listing: what others publish meanwhile is in S3 before it is here, and must not look gone.
        before = tuple(_files(self._place))
        tree = self._listed()
        if tree.refused:
            shown = ", ".join(repr(name) for name in tree.refused[:_SHOWN])
            which = f"{len(tree.refused):,} objects that lie where no results folder has any ({shown})"
            self._watch.say(f"{self._place.uri}: left out {which}")
        for line in tree.oversize[:_SHOWN]:
            self._watch.say(line)
        if len(tree.oversize) > _SHOWN:
            self._watch.say(f"{self._place.uri}: {len(tree.oversize) - _SHOWN:,} more objects are too large")
        seen = Seen(self._place)
        missing = {
            folder: new
            for folder, files in tree.jobs.items()
            if (
                new := [
                    each
                    for name, each in files.items()
                    if name in self._wants.value and not seen.holds(each, thorough=thorough)
                ]
            )
        }
        others = [each for each in tree.others.values() if not seen.holds(each, thorough=thorough)]
        synced = Synced(tree)
        held: list[Stored] = []
        try:
            self._fetch(synced, missing, others, held)
        finally:
            seen.remember(held)
        _remove(self._place, before, tree)
        return synced

    def _listed(self) -> Tree:
        tree = Tree()
        tree.add(listed(self._objects, self._place.prefix, self._pool))
        prefix = self._place.prefix
        above = set()
        for suite in {suite_of(job) for job in tree.jobs}:
            if not f"{suite}/".startswith(prefix):
                above |= {f"{suite}/{seals.MANIFEST}", *(f"{suite}/{name}/" for name in INPUTS)}
            home = home_of(suite)
            if not f"{home}/".startswith(prefix):
                above.add(f"{home}/{origins.FILE}".removeprefix("/"))
        for found in self._pool.map(self._above, sorted(above)):
            tree.add(found)
        return tree

    def _above(self, prefix: str) -> list[Stored]:
        """What lies above the place that was named, as far as whoever may read the place may read it."""
        try:
            return list(self._objects.list(prefix))
        except AwsError as error:
            if error.code != "AccessDenied":
                raise
            self._watch.say(
                f"{self._place.uri}: read without {S3Uri(self._place.uri.bucket, prefix)}, which is not permitted"
            )
            return []

    def _fetch(
        self, synced: Synced, missing: dict[str, list[Stored]], others: list[Stored], held: list[Stored]
    ) -> None:
        """Fetch what is missing; what has come is added to ``held`` as it comes."""
        if not missing and not others:
            return
        with leftovers.scratch(self._place.cache / "s3" / ".partial", "sync") as scratch:
            landing = Landing(self._place, self._objects, scratch)
            texts = self._indexed(synced.tree, missing)
            waiting: list[Future[list[Stored]]] = [self._pool.submit(landing.others, each) for each in others]
            for folder, new in missing.items():
                job = Job(folder, synced.tree.jobs[folder], new, self._wants.value, texts.get(folder))
                waiting.append(self._pool.submit(landing.job, job))
                if job.record_is_new and job.text is None:
                    suite = suite_of(folder)
                    synced.one_by_one[suite] = synced.one_by_one.get(suite, 0) + 1
            for number, each in enumerate(as_completed(waiting), 1):
                held += each.result()
                self._watch.progress(number, len(waiting))

    def _indexed(self, tree: Tree, missing: dict[str, list[Stored]]) -> dict[str, bytes]:
        """What indexes hold of the results that are missing, by job."""
        wanted = {
            each.name: each for new in missing.values() for each in new if each.name.endswith(f"/{stored_jobs.RESULT}")
        }
        found: dict[str, bytes] = {}
        if len(wanted) < _ASK_INDEX_FROM:
            return found

        def take(each: Stored, text: bytes) -> None:
            found[each.name.rpartition("/")[0]] = text

        # One may lie anywhere; those of the suites in question alone are worth their bytes.
        suites = {suite_of(name.rpartition("/")[0]) for name in wanted}
        for each in (tree.indexes[suite] for suite in sorted(suites & tree.indexes.keys())):
            index.texts(self._objects, each, wanted, take)
        return found


def keep_index(place: Place, connections: Connections, synced: Synced) -> None:
    """Make the indexes anew of suites of which many results had to be fetched one by one, if that is permitted."""
    for suite, count in synced.one_by_one.items():
        # Of a part of a suite, an index of the whole could not be made.
        if count >= _MAKE_INDEX_FROM and f"{suite}/".startswith(place.prefix):
            with suppress(AwsError):  # whoever may only read reads without
                make_index(place, connections, synced.tree, suite)


def make_index(place: Place, connections: Connections, tree: Tree, suite: str) -> int:
    """Write the index of a suite that was synced whole; return how many results it holds."""
    results = {
        files[stored_jobs.RESULT].name: files[stored_jobs.RESULT]
        for folder, files in tree.jobs.items()
        if suite_of(folder) == suite
    }
    return index.write(Objects(connections, S3Uri(place.uri.bucket)), place, suite, results)


def _files(place: Place) -> Iterator[str]:
    """The keys of all files in the mirror of a place that may be an object's."""
    waiting = [place.folder]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                inside = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        except OSError:  # nothing was ever mirrored, or another process removed it
            continue
        for name, is_folder in inside:
            if is_folder and name != stored_jobs.STAGING:
                waiting.append(folder / name)
            elif not is_folder and kept(key := place.key(folder / name)):
                yield key


def _remove(place: Place, before: Iterable[str], tree: Tree) -> None:
    """Remove files whose objects have gone, a job's record before the rest."""
    there = {each.name for files in tree.jobs.values() for each in files.values()} | tree.others.keys()
    gone = [key for key in before if key not in there]
    for key in sorted(gone, key=lambda key: not key.endswith(f"/{stored_jobs.RESULT}")):
        place.path(key).unlink(missing_ok=True)
    for folder in {place.path(key).parent for key in gone}:
        for each in (folder, *folder.parents):
            if each == place.bucket_folder:
                break
            try:
                each.rmdir()
            except FileNotFoundError:  # went with another
                continue
            except OSError:  # it is not empty
                break
