"""Many bootstraps of many pairs of sets, on all CPUs.

One process a CPU, each with libraries of one thread: the eigenvalues of a few hundred dimensions gain nothing from
a second thread, and two resamples at once take half the time.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness import filesystem
from harness.evaluation.frechet.resampling import Points, distances, precision

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
_CHUNK = 250  # resamples at once: their covariances are held together
_MOST_BYTES = 8 << 30  # of all processes together
# Multiplications from which starting processes pays: a second or two of one CPU.
_WORTH = 1e11


@dataclass(frozen=True)
class Placed:
    """A set: rows of the vectors, and the query that each is of; sorted by query."""

    rows: Ints
    query: Ints


@dataclass(frozen=True)
class _Task:
    one: Placed
    other: Placed
    weights: Ints


def draws(queries: int, resamples: int, seed: int) -> Ints:
    """How often each resample drew each query, shape (resamples, queries): the same ones for every system."""
    return np.random.default_rng(seed).multinomial(queries, np.full(queries, 1 / queries), size=resamples)


def resampled(
    vectors: NDArray[np.float32],
    pairs: Sequence[tuple[Placed, Placed]],
    weights: Ints,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Floats:
    """The distance of each pair under each row of weights: shape (pairs, resamples); ``nan`` where a set has fewer
    than two vectors.

    Args:
        vectors: what the rows of all pairs mean.
        pairs: sets.
        weights: shape (resamples, queries).
        progress: told how much is done, of how much.
    """
    found = np.full((len(pairs), len(weights)), np.nan)
    starts = range(0, len(weights), _CHUNK)
    tasks = {
        (place, first): _Task(*pair, weights[first : first + _CHUNK])
        for place, pair in enumerate(pairs)
        for first in starts
    }
    progress(0, len(tasks))
    workers = _workers(vectors.shape[1], pairs, weights, len(tasks))
    if workers < 2:
        for done, ((place, first), task) in enumerate(tasks.items(), 1):
            found[place, first : first + len(task.weights)] = _distances(vectors, task)
            progress(done, len(tasks))
        return found
    with filesystem.temporary_folder("frechet") as folder, _single_threaded(), _pool(workers) as pool:
        path = folder / "vectors.npy"
        np.save(path, vectors)
        futures = {pool.submit(_work, path, task): key for key, task in tasks.items()}
        for done, future in enumerate(as_completed(futures), 1):
            place, first = futures[future]
            made = future.result()
            found[place, first : first + len(made)] = made
            progress(done, len(tasks))
    return found


def _workers(dims: int, pairs: Sequence[tuple[Placed, Placed]], weights: Ints, tasks: int) -> int:
    """How many processes; 1: none but this one."""
    work, most = 0.0, 0
    for pair in pairs:
        sizes = [len(each.rows) for each in pair]
        # Cross-products, then eigenvalues of the smaller side.
        work += sum(min(size, weights.shape[1]) * dims**2 for size in sizes) + 2.0 * min(dims, *sizes) ** 3
        most = max(most, 16 * dims * sum(sizes) + 8 * _CHUNK * dims**2)
    if work * len(weights) < _WORTH:
        return 1
    return max(1, min(len(os.sched_getaffinity(0)), tasks, _MOST_BYTES // most))


@contextmanager
def _single_threaded() -> Iterator[None]:
    """Processes that start meanwhile have libraries of one thread."""
    before = {name: os.environ.get(name) for name in _ONE_THREAD}
    os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Processes of their own, which end at once when we are stopped."""
    others = set(multiprocessing.active_children())
    # Not forked: the libraries of a fork keep the threads that they were loaded with.
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=_begin)
    try:
        yield pool
    except BaseException:
        for child in set(multiprocessing.active_children()) - others:
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started us


def _work(path: Path, task: _Task) -> Floats:
    return _distances(np.load(path, mmap_mode="r"), task)


def _distances(vectors: NDArray[np.float32], task: _Task) -> Floats:
    queries = task.weights.shape[1]
    centre = vectors[task.one.rows].mean(axis=0, dtype=np.float64) if len(task.one.rows) else 0.0
    sets = []
    for each in (task.one, task.other):
        kind = precision(len(each.rows), vectors.shape[1])
        centred = np.empty((len(each.rows), vectors.shape[1]), dtype=kind)
        np.subtract(vectors[each.rows], centre, out=centred, casting="same_kind")
        sets.append(Points(centred, each.query, queries))
    return distances(sets[0], sets[1], task.weights)
