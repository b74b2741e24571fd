"""Jobs of a service that runs already: a client as a plain child process, and nothing of the server.

harness starts, limits and sees no server.  It reaches the address, hands the client its credentials, sends no more
than it may, and leaves nothing behind: an index that it built there goes when the launcher closes.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import ssl
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter_ns

from harness.driver.output import MEASUREMENT
from harness.driver.records import EffectiveEnvelope, Envelope, Outcome, digest
from harness.errors import EngineError, UsageError
from harness.launch import cpu_placement, host, process
from harness.launch.base import LOG_BYTES, LaunchEnd, LaunchRequest, Limits, Prepared, StopReason
from harness.launch.credentials import Credentials
from harness.launch.images.systems import System
from harness.launch.monitor.sources import JobSource, ProcessSource
from harness.launch.monitor.traces import CounterReading
from harness.launch.observation import ObservedJob
from harness.launch.service_address import INDEX, PORTS, cannot_ask, is_local, parsed
from harness.progress import Progress, task
from harness.results.isolation import ATTACHED
from harness.results.schema import Placement
from harness.untrusted import MAX_TEXT, last_line, one_line, read_start

log = logging.getLogger(__name__)

# Tells the client that its server runs already: it asks once whether it answers, and does not wait for it.
RUNS_VARIABLE = "HARNESS_SERVICE_RUNS"
_REACH_S, _REMOVE_S = 10.0, 120.0
_CUT_BYTES = 64 << 10
_MOST_MEASUREMENT_BYTES = 1 << 20
# Certificates of an own authority, as OpenSSL finds them.
_AUTHORITIES = ("SSL_CERT_FILE", "SSL_CERT_DIR")


class AttachedLauncher(process.ProcessLauncher):
    """Launcher of clients of one service that runs already."""

    isolation = ATTACHED
    options = frozenset({"url", "max_qps", "builds"})
    runs_services = True
    needs_indexes = False

    def __init__(self, cache: Path, models: Path | None = None) -> None:
        super().__init__(cache, models)
        self.service_url: str | None = None
        self.max_qps: float | None = None
        self.builds = False
        self._credentials = Credentials({})
        self._reached = False
        self._built: dict[str, LaunchRequest] = {}  # the jobs that built the service's indexes, or tried to
        self._failed: dict[str, StopReason | None] = {}

    @classmethod
    def open(cls, cache: Path, models: Path | None, options: Mapping[str, str]) -> AttachedLauncher:
        """Return a launcher for the service at ``url``."""
        launcher = cls(cache, models)
        launcher.service_url = options.get("url")
        launcher.max_qps = float(options["max_qps"]) if "max_qps" in options else None
        launcher.builds = options.get("builds") == "yes"
        launcher._credentials = Credentials.of_environment()
        return launcher

    def check(self) -> None:
        """Raise an error when the service cannot be reached; no query and no credentials are sent."""
        if self.service_url is None:
            raise UsageError("--launcher attached measures the service of a suite's `url`; use `harness attach URL`")
        if not self._reached:
            _reach(self.service_url)
            self._reached = True

    def cannot(self, envelope: Envelope) -> str | None:  # noqa: ARG002 # the server's machine is another
        """Return None: this host needs to provide nothing."""
        return None

    def cannot_run(self, system: System) -> str | None:
        """Return why the system cannot ask a running service, or None."""
        return cannot_ask(system, build=self.builds) or super().cannot_run(system)

    def recipe(self, system: System) -> str:
        """Hash the client's environment with the service that it asks: each service has results of its own."""
        return self._of_service(self._prepared(system)).recipe

    def find(self, system: System) -> Prepared | None:
        """Return the client's environment, if it is here."""
        found = super().find(system)
        return found and self._of_service(found)

    def prepare(self, system: System) -> Prepared:
        """Install the client's packages."""
        return self._of_service(super().prepare(system))

    def _of_service(self, prepared: Prepared) -> Prepared:
        asked = [prepared.recipe, self.service_url, self.max_qps, self.builds]
        return replace(prepared, recipe=f"attached:{digest(asked)}")

    def launch(self, job: LaunchRequest, progress: Progress) -> LaunchEnd:
        """Run one client to its end; with ``builds``, the first client of an index builds it before."""
        if failed := self._build(job, progress):
            return LaunchEnd(stopped=failed)
        return self._run(job, progress)

    def close(self) -> None:
        """Remove the indexes that were built in the service, also after an error."""
        while self._built:
            _, built = self._built.popitem()
            if failed := self._remove(built):
                name = built.spec.params[INDEX]
                log.info(f"  Index {name!r} could not be removed from the service: {failed.detail}. Remove it there.")
        super().close()

    def _build(self, job: LaunchRequest, progress: Progress) -> StopReason | None:
        """Build the index of a job in the service, at its first use; return why that failed, each time."""
        if not self.builds:
            return None
        key = digest([job.prepared.recipe, job.spec.params, str(job.corpus_dir)])
        if key not in self._built:
            folder = job.folder / "build"
            (folder / "out").mkdir(parents=True)
            spec = replace(job.spec, kind="build", warmup=(), sample=(), pause=False, trials=0, repeats=0)
            # Kept before anything is written, so that it is removed after any end.
            built = self._built[key] = replace(job, spec=spec, folder=folder)
            # A killed run may have left one.
            self._failed[key] = self._remove(built) or self._fault(built, progress)
        return self._failed.get(key)

    def _remove(self, job: LaunchRequest) -> StopReason | None:
        """Remove an index from the service; return why that failed."""
        name = job.spec.params[INDEX]
        with TemporaryDirectory() as scratch, task(f"removing index {name}", line=False) as progress:
            folder = Path(scratch)
            (folder / "out").mkdir()
            spec = replace(job.spec, kind="remove")
            limits = Limits(*[_REMOVE_S] * 4)
            return self._fault(replace(job, spec=spec, folder=folder, limits=limits), progress)

    def _fault(self, job: LaunchRequest, progress: Progress) -> StopReason | None:
        """Run a client that builds or removes an index; return why it failed, by what it wrote."""
        ended = self._run(job, progress)
        if ended.stopped:
            return ended.stopped
        try:
            measured = json.loads(read_start(job.out / MEASUREMENT, _MOST_MEASUREMENT_BYTES))
            outcome, detail = str(measured["outcome"]), measured["detail"]
        except (OSError, ValueError, KeyError, TypeError):
            outcome, detail = "", f"ended with exit code {ended.exit_code}; {last_line(ended.log)}"
        if outcome == Outcome.OK.value and not ended.exit_code:
            return None
        return StopReason(Outcome.CRASH, one_line(f"index {job.spec.kind}: {detail}", MAX_TEXT))

    def _run(self, job: LaunchRequest, progress: Progress) -> LaunchEnd:
        """Run one child to its end; its whole process group goes with it."""
        self.check()
        empty = job.folder / "index"
        empty.mkdir()
        job = replace(job, index_dir=empty, spec=replace(job.spec, service_url=self.service_url, max_qps=self.max_qps))

        def report(done: int, total: int = 0, phase: str = "", /) -> None:
            progress(done, total, self._credentials.hide(phase))

        with cpu_placement.placed(1) as own, (job.folder / "log").open("w+b") as printed:
            placement = Placement((), (), None, own.harness_cpus, apart=True, client_cpus=own.cpus)
            client, code = job.for_client(own.cpus), process.start(own.cpus)
            seen = ObservedJob(job, placement)  # this machine's speed says nothing of the service's
            with host.aside(placement), self._running(client, code, printed, seen, _ClientSource) as (child, ended):
                stopped = None
                if job.spec.kind != "remove":
                    # The load counts from here, after the client's imports.
                    stopped = seen.reach_load(ended)
                    job.tell_server_started(perf_counter_ns())
                stopped = stopped or seen.follow(ended, report)
            self._credentials.hide_files(job.out)
            if stopped:
                stopped = replace(stopped, detail=self._credentials.hide(stopped.detail))
            end = seen.end(child.returncode, self._printed(printed.fileno()), stopped)
        return replace(end, server=_unknown())

    def _printed(self, descriptor: int) -> bytes:
        """Return the end of what a child printed, without the values of credentials."""
        size, most = os.fstat(descriptor).st_size, LOG_BYTES + _CUT_BYTES
        text = self._credentials.hide_bytes(os.pread(descriptor, most, max(0, size - most)))
        return text[_CUT_BYTES:] if size > most else text  # a value may be cut at its beginning

    def _environment(self, job: LaunchRequest) -> dict[str, str]:
        more = {name: os.environ[name] for name in _AUTHORITIES if name in os.environ}
        if (self.service_url or "").startswith("postgresql:") and not is_local(self.service_url or ""):
            more |= {"PGSSLMODE": "verify-full", "PGSSLROOTCERT": more.get("SSL_CERT_FILE", "system")}
        return {**super()._environment(job), RUNS_VARIABLE: "1", **more, **self._credentials.values}


class _ClientSource(JobSource):
    """The CPU time of a client; of its server nothing is seen."""

    def __init__(self, pid: int) -> None:
        self._client = ProcessSource(pid, ())

    def read(self) -> CounterReading | None:
        """Read the client's CPU time."""
        reading = self._client.read()
        return CounterReading(reading.t_ns, client_cpu_ns=reading.cpu_ns) if reading else None


def _reach(url: str) -> None:
    """Connect to a service once, and verify its certificate.

    Raises:
        EngineError: it does not answer, or its certificate does not hold.
        UsageError: its name is not known.
    """
    address = parsed(url)
    name, port = address.hostname or "", address.port or PORTS[address.scheme]
    try:
        with socket.create_connection((name, port), _REACH_S) as connection:
            if address.scheme == "https":
                with ssl.create_default_context().wrap_socket(connection, server_hostname=name):
                    pass
        return
    except ssl.SSLCertVerificationError as error:
        own = "for an authority of your own set SSL_CERT_FILE"
        fault = f"its certificate does not hold ({error.verify_message}); correct it, or {own}"
    except ssl.SSLError as error:
        fault = f"it does not speak TLS ({error.reason}); correct the address"
    except socket.gaierror:
        raise UsageError(f"{name}: no machine has this name; correct the address of the service") from None
    except TimeoutError:
        fault = f"nothing answered within {_REACH_S:g} s; correct the address, or start it"
    except OSError as error:
        why = error.strerror or type(error).__name__
        fault = f"the service cannot be reached ({why}); correct the address, or start it"
    raise EngineError(f"{name}:{port}: {fault}")


def _unknown() -> EffectiveEnvelope:
    """Return the limits of a server of which nothing can be read."""
    return EffectiveEnvelope((), None, None, None, None, None, 0, (), None, None, None, os.getuid())
