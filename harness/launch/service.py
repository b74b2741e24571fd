"""A job of a service: its server and the server's client, two containers that share a network and nothing else.

The server has the envelope: it is what is verified, watched and priced.  The client, the driver with the engine's
adapter, has the CPUs that are left.  The network is the client's own, with a loopback interface alone; the server
joins it, so nothing else is in reach of either.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import docker
from docker.types import Mount
from pydantic import TypeAdapter

from harness import filesystem
from harness.driver.cgroup import Cgroup
from harness.driver.envelope import mismatches
from harness.driver.procfs import ReadFile
from harness.driver.records import EffectiveEnvelope, Outcome
from harness.driver.serve import EFFECTIVE, MISMATCH
from harness.launch import container
from harness.launch.base import CLIENT_BYTES, LOG_BYTES, LaunchEnd, LaunchRequest, StopReason
from harness.launch.connection import engine_errors
from harness.launch.container import ContainerEnd, JobContainer
from harness.launch.images.systems import ServiceSettings
from harness.launch.limits import limit_change, limit_mismatch
from harness.launch.monitor.canary import Canary
from harness.launch.monitor.sources import JobSource
from harness.launch.monitor.traces import CounterReading, MemoryNow
from harness.launch.observation import ObservedJob, observed
from harness.launch.watch import most_index_bytes, too_large
from harness.progress import Progress
from harness.results.schema import Placement
from harness.untrusted import MAX_TEXT, check_names, last_line, one_line, read_start

# How long a server may take to end when it is asked to, after a build; and to be seen dead when its client has failed.
_STOP_S, _DYING_S = 120.0, 2.0
# Exit codes of a server that got SIGTERM: its own, or 128 and the signal's.
_ENDED_WELL = (0, 128 + signal.SIGTERM)
_EFFECTIVE = TypeAdapter(EffectiveEnvelope)
_MOST_OUT_BYTES = 1 << 20
_MOST_EFFECTIVE_BYTES = 1 << 16


def launch(
    engine: docker.DockerClient, job: LaunchRequest, placement: Placement, canary: Canary, progress: Progress
) -> LaunchEnd:
    """Run a service's job: start its client, then the server; follow both to the end, and remove them."""
    placement = replace(placement, client_cpus=placement.harness_cpus)
    with ExitStack() as stack:
        stack.enter_context(engine_errors())
        server_job, client_job = _server(job, placement), _client(job, placement)
        seen = stack.enter_context(observed(job, placement, canary))
        try:
            client = stack.enter_context(container.created(engine, _client_arguments(client_job, placement)))
            arguments = _server_arguments(server_job, placement, client)
            server = stack.enter_context(container.created(engine, arguments))
        except docker.errors.APIError as error:  # the engine answers, so other jobs may run
            return LaunchEnd(stopped=container.refused(error), placement=placement)
        seen.begin()
        return _Pair(job, server_job, placement, server, client).run(seen, progress)


@dataclass(frozen=True)
class _Pair:
    """The two containers of one job; ``ended``: one of them has ended."""

    job: LaunchRequest
    server_job: LaunchRequest
    placement: Placement
    server: JobContainer
    client: JobContainer
    ended: threading.Event = field(default_factory=threading.Event)

    def run(self, seen: ObservedJob, progress: Progress) -> LaunchEnd:
        """Start both, follow them to the end, and judge which of them ended the job."""
        job, server, client, placement = self.job, self.server, self.client, self.placement
        if refused := client.start(self.ended):
            return LaunchEnd(stopped=refused, placement=placement)
        # The server starts once its client waits for it, so that its load is seen from its first moment.
        stopped = seen.reach_load(client.ended)
        if stopped or client.ended.is_set():
            client.kill()
            with seen.sampling(lambda _: JobSource()):
                pass
            ended = client.result()
            return seen.end(ended.exit_code, ended.log, stopped)
        if refused := server.start(self.ended):
            return LaunchEnd(stopped=refused, placement=placement)
        job.tell_server_started(server.started_ns)
        with seen.sampling(self._source):
            stopped = limit_mismatch(server.group, job.spec.envelope, placement.cpuset) or seen.follow(
                self.ended, progress, self._check
            )
            if client.ended.is_set() and client.result().exit_code:
                # It failed because the server is going, perhaps, and was the first to notice.
                server.ended.wait(_DYING_S)
            died = server.ended.is_set() and not stopped
            stopped = stopped or self._stop_after_build()
            for each in (client, server):
                each.kill()
        return self._end(seen, stopped, died)

    def _source(self, read: ReadFile) -> JobSource:
        client = replace(self.client.group, read=read) if self.client.group else None
        return _PairSource(self.server.source(self.placement, read), client)

    def _check(self) -> StopReason | None:
        """Return why the job cannot go on: the server's limits have changed, or it fills the disk."""
        job = self.server_job
        return (
            limit_change(self.server.group, self.placement.cpuset)
            or too_large(job.out, _MOST_OUT_BYTES, "the server wrote")
            or (too_large(job.index_dir, most_index_bytes(job), "the index has") if job.index_is_copy else None)
        )

    def _stop_after_build(self) -> StopReason | None:
        """End the server of a finished build in good order, so that its index is whole on the disk."""
        if self.job.spec.kind != "build" or self.server.ended.is_set() or not self.client.ended.is_set():
            return None
        self.server.kill(signal.SIGTERM)
        if self.server.ended.wait(_STOP_S):
            return None
        reason = f"the server did not end within {_STOP_S:g} s of the signal to, after the build"
        return StopReason(Outcome.TIMEOUT, f"{reason}; its index may not be whole")

    def _end(self, seen: ObservedJob, stopped: StopReason | None, died: bool) -> LaunchEnd:
        """Return the end of the job; a server that ended by itself ended it."""
        server, client = self.server.result(), self.client.result()
        effective = read_effective(self.server_job)
        parts = [b"the client:", client.log, b"the server:", server.log]
        log = b"\n".join(parts if died else parts[2:] + parts[:2])[-LOG_BYTES:]
        exit_code = server.exit_code if died else client.exit_code
        ended = replace(seen.end(exit_code, log, stopped, oom_killed=server.oom_killed), server=effective)
        if stopped or ended.lacked_memory(self.job.spec.envelope.memory_bytes):
            return ended
        return replace(ended, stopped=self._fault(server, client, died, effective))

    def _fault(
        self, server: ContainerEnd, client: ContainerEnd, died: bool, effective: EffectiveEnvelope | None
    ) -> StopReason | None:
        """Return what was wrong with a job that ran to an end, as far as its files do not say."""
        if died and server.exit_code == MISMATCH and effective is not None:
            spec = self.server_job.spec
            wrong = mismatches(spec.envelope, effective, spec.enforced, self.placement.cpuset)
            return StopReason(Outcome.ENVELOPE_MISMATCH, one_line("; ".join(wrong) or last_line(server.log), MAX_TEXT))
        if died:
            what = f"the server ended with exit code {server.exit_code} before its client did"
            return StopReason(Outcome.CRASH, f"{what}; {last_line(server.log)}")
        if client.oom_killed:
            text = f"the client needed more than its {CLIENT_BYTES >> 20} MiB; the server's limit was not reached"
            return StopReason(Outcome.CRASH, text)
        if self.job.spec.kind == "build" and not client.exit_code and server.exit_code not in _ENDED_WELL:
            what = f"the server ended with exit code {server.exit_code} when it was asked to, after the build"
            return StopReason(Outcome.CRASH, f"{what}; {last_line(server.log)}")
        return None


def _server(job: LaunchRequest, placement: Placement) -> LaunchRequest:
    """Make the server's part of a job: its folder, its spec, and the copy of an index that it would change."""
    folder, settings = job.folder / "server", _settings(job)
    (folder / "out").mkdir(parents=True)
    spec = replace(job.spec, service_url=None, updates=None)
    made = replace(job, spec=spec, folder=folder)
    if job.spec.kind == "search" and settings.writes_index and not job.index_is_copy:
        made = made.with_copied_index()
    made.write_spec(placement.cpuset)
    container.open_to_job_user(made)
    return made


def _client(job: LaunchRequest, placement: Placement) -> LaunchRequest:
    """Make the client's part of a job, with an envelope of its own."""
    made = job.for_client(placement.client_cpus)
    container.open_to_job_user(made)
    return made


def _server_arguments(job: LaunchRequest, placement: Placement, client: JobContainer) -> dict[str, Any]:
    """Return how the engine creates the server, which joins its client's network and sees no corpus."""
    arguments = container.create_arguments(job, placement)
    arguments["network_mode"] = f"container:{client.id}"
    arguments["mounts"] = [mount for mount in arguments["mounts"] if mount["Target"] != "/corpus"]
    settings, envelope = _settings(job), job.spec.envelope
    if settings.image is None:
        return {**arguments, "entrypoint": ["python3", "-m", "harness.driver.serve"]}
    # A published server knows nothing of harness: its data alone is mounted, where it looks for it.
    data = Mount(settings.index_path, str(job.index_dir), type="bind", read_only=not job.may_write_index)
    scratch = dict.fromkeys(settings.scratch, container.SCRATCH)
    environment = {name: settings.filled(value, envelope) for name, value in settings.environment.items()}
    return {
        **arguments,
        "image": settings.image,
        "command": [settings.filled(word, envelope) for word in settings.command] or None,
        "user": _user(job),
        "environment": {**arguments["environment"], **environment},
        "mounts": [data],
        "tmpfs": {**arguments["tmpfs"], **scratch},
    }


def _settings(job: LaunchRequest) -> ServiceSettings:
    settings = job.prepared.system.service
    assert settings is not None, "its spec has the address"
    return settings


def _user(job: LaunchRequest) -> str:
    """Return the user of a published server, who owns the folder of its data."""
    user = _settings(job).user or container.job_user()
    if job.may_write_index and os.getuid() == 0:
        for path in (job.index_dir, *map(Path, (entry.path for entry in filesystem.walk(job.index_dir)))):
            os.chown(path, user, user, follow_symlinks=False)
    return f"{user}:{user}"


def _client_arguments(job: LaunchRequest, placement: Placement) -> dict[str, Any]:
    """Return how the engine creates the client, which sees no index."""
    beside = replace(placement, cpus=placement.client_cpus, numa_nodes=())
    arguments = container.create_arguments(job, beside)
    return {**arguments, "mounts": [mount for mount in arguments["mounts"] if mount["Target"] != "/index"]}


def read_effective(job: LaunchRequest) -> EffectiveEnvelope | None:
    """Return the limits that the server's container read from inside; None: it wrote none that can be read."""
    try:
        effective = _EFFECTIVE.validate_json(read_start(job.out / EFFECTIVE, _MOST_EFFECTIVE_BYTES))
        check_names(effective)
    except (OSError, ValueError):
        return None
    return effective


class _PairSource(JobSource):
    """Readings of a server, each with the CPU time of its client."""

    def __init__(self, server: JobSource, client: Cgroup | None) -> None:
        self._server, self._client = server, client
        self._client_ns: int | None = None  # the last reading: a client that has ended has no cgroup
        self.name = server.name

    def now(self) -> MemoryNow | None:
        """Return the server's memory."""
        return self._server.now()

    def read(self) -> CounterReading | None:
        """Read the counters of both."""
        reading = self._server.read()
        if self._client and (used_ns := self._client.cpu_ns()) is not None:
            self._client_ns = used_ns
        return replace(reading, client_cpu_ns=self._client_ns) if reading else None

    def pids(self) -> Collection[int] | None:
        """Return the server's processes."""
        return self._server.pids()
