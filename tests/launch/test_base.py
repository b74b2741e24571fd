"""Threads follow the envelope."""

from __future__ import annotations

from harness.launch.base import thread_environment


def test_every_known_library_is_limited_to_the_cpus() -> None:
    environment = thread_environment(3)
    known = {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "RAYON_NUM_THREADS"}
    assert known <= environment.keys()
    known = {"GOMAXPROCS", "NUMBA_NUM_THREADS", "POLARS_MAX_THREADS", "TF_NUM_INTRAOP_THREADS", "UV_THREADPOOL_SIZE"}
    assert known <= environment.keys()
    assert environment.pop("TOKENIZERS_PARALLELISM") == "true"
    assert environment.pop("JAVA_TOOL_OPTIONS") == "-XX:ActiveProcessorCount=3"
    assert set(environment.values()) == {"3"}
    assert thread_environment(1)["TOKENIZERS_PARALLELISM"] == "false"
