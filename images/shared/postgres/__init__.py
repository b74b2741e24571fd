"""PostgreSQL as the server of a service: its settings in an envelope, its cluster, and the command that starts it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from harness.driver.records import Envelope, Scalar

VERSION = 17
ROOT = Path("/opt/postgresql")
_DATA = "data"  # folder of the cluster below the index
# Connections beside the benchmark's: one that waits and counts, and those that PostgreSQL keeps for itself.
_MORE_CONNECTIONS = 5
_MIB = 1 << 20


def settings(envelope: Envelope, port: int, connections: int, reserved_bytes: int = 0) -> dict[str, str]:
    """Return the settings of a server that has this envelope.

    Args:
        connections: of the benchmark, at once.
        reserved_bytes: memory of other programs in the container.
    """
    memory_mib = max((envelope.memory_bytes - reserved_bytes) // _MIB, 64)
    workers = envelope.cpus - 1  # the process that asks them works too
    return {
        "listen_addresses": "127.0.0.1",
        "port": str(port),
        "unix_socket_directories": "",
        "max_connections": str(connections + _MORE_CONNECTIONS),
        "shared_buffers": f"{memory_mib // 4}MB",
        "effective_cache_size": f"{memory_mib // 2}MB",
        "maintenance_work_mem": f"{memory_mib // 4}MB",
        "work_mem": f"{max(memory_mib // (16 * connections), 4)}MB",
        "huge_pages": "off",
        # Containers limit /dev/shm; this kind counts as the container's memory all the same.
        "dynamic_shared_memory_type": "sysv",
        "max_worker_processes": str(workers),
        "max_parallel_workers": str(workers),
        "max_parallel_workers_per_gather": str(workers),
        "max_parallel_maintenance_workers": str(workers),
        "max_logical_replication_workers": "0",
        "jit": "off",
        "random_page_cost": "1.1",
        # Nothing changes after the build, which vacuums; a crash ends the job, and its files with it.
        "autovacuum": "off",
        "fsync": "off",
        "full_page_writes": "off",
        "synchronous_commit": "off",
        "wal_level": "minimal",
        "max_wal_senders": "0",
        "wal_recycle": "off",
        "min_wal_size": "2MB",
        "max_wal_size": "1GB",
        "checkpoint_timeout": "1d",
        "log_min_messages": "warning",
        "log_checkpoints": "off",
        "log_timezone": "UTC",
        "timezone": "UTC",
    }


# The signal that ends the server at once and in good order: SIGTERM would wait until every client has gone.
STOP = "SIGINT"


def command(chosen: Mapping[str, str], index_dir: Path) -> list[str]:
    """Return the server's command, after its cluster was made below the index, or made ready again.

    Args:
        chosen: :func:`settings`.
    """
    data = index_dir / _DATA
    prepare(ROOT / "cluster", data)
    given = [word for name, value in chosen.items() for word in ("-c", f"{name}={value}")]
    server = ROOT / f"usr/lib/postgresql/{VERSION}/bin/postgres"
    return [str(server), "-D", str(data), *given]


def prepare(empty: Path, data: Path) -> None:
    """Copy the empty cluster where there is none; give an old one the modes and folders that the server insists on."""
    if not data.exists():
        partial = data.with_name(f"{data.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(empty, partial)
        partial.rename(data)
    # Copies of an index may have lost empty folders.
    for folder in empty.rglob("*"):
        if folder.is_dir():
            (data / folder.relative_to(empty)).mkdir(exist_ok=True)
    for path in (data, *data.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)


def number(params: Mapping[str, Scalar], name: str) -> int:
    """Return a parameter that is a whole number of at least 1.

    Raises:
        ValueError: it is another.
    """
    value = params[name]
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} is {value!r}, must be a whole number of at least 1")
    return value
