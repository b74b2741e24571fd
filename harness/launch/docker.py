"""Jobs as containers of a Docker engine, with every limit enforced by the kernel."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from functools import cached_property, partial
from pathlib import Path

import docker
import psutil
import requests
from docker.models.images import Image as DockerImage

from harness.config import page
from harness.driver import cgroup
from harness.errors import EngineError, ImageError, UsageError
from harness.filesystem import has_died
from harness.launch import connection, container, cpu_placement, podman, service
from harness.launch.base import LaunchEnd, Launcher, LaunchRequest, Prepared
from harness.launch.checks import Check, Level, warn_if
from harness.launch.connection import engine_errors
from harness.launch.container import LABEL
from harness.launch.images import emulation, platforms, recipes, side_by_side
from harness.launch.images.builder import Image, ImageBuilder
from harness.launch.images.engine_build import BuildLimits
from harness.launch.images.systems import System
from harness.launch.limits import limit_change, limit_mismatch
from harness.launch.monitor.canary import Canary
from harness.launch.observation import observed
from harness.progress import Progress, silent
from harness.results.isolation import CONTAINER
from harness.untrusted import one_line

log = logging.getLogger(__name__)


class DockerLauncher(Launcher):
    """Launches jobs on the engine that the ``docker`` command would use (:mod:`harness.launch.connection`).

    Args:
        platform: the platform of the images (``linux/arm64``); the engine's own if not given.
        emulated: jobs may run where the engine only emulates that platform.  Emulated times mean nothing, so never set
            it for a measurement.
    """

    isolation = CONTAINER
    runs_services = True
    options = frozenset({"platform"})

    def __init__(
        self, cache: Path, models: Path | None = None, *, platform: str | None = None, emulated: bool = False
    ) -> None:
        super().__init__(cache, models)
        self._platform = platform
        self._emulated = emulated
        self._client: docker.DockerClient | None = None
        self._canary = Canary()

    @classmethod
    def open(cls, cache: Path, models: Path | None, options: Mapping[str, str]) -> DockerLauncher:
        """Return a launcher; with ``platform``, of images for it, and of jobs even where it must be emulated."""
        platform = options.get("platform")
        return cls(cache, models, platform=platform, emulated=platform is not None)

    @classmethod
    def examine(cls) -> Iterator[Check]:
        """Check the engine, the limits that it can enforce, and the cgroups that its jobs are read from."""
        yield from _engine_checks()
        yield _cgroup_check()

    def check(self) -> None:
        """Raise EngineError unless the engine answers, and outside of an allocation of Slurm."""
        if job := os.environ.get("SLURM_JOB_ID"):
            raise EngineError(
                f"this process runs in Slurm job {job}, and an engine starts containers outside of it: they would take"
                " CPUs and memory that Slurm gave to others; use --launcher apptainer"
            )
        _ = self.client

    @property
    def client(self) -> docker.DockerClient:
        """Return the connection, made at first use."""
        if self._client is None:
            with engine_errors():
                self._client = connection.connect(120)
                self._client.ping()
        return self._client

    def _builder(self, stopped: threading.Event | None = None, progress: Progress = silent) -> ImageBuilder:
        limits = BuildLimits(stopped=stopped) if stopped else BuildLimits()
        return ImageBuilder(self.client, self.cache, self.models, self._platform, limits, progress)

    def engine_version(self) -> str | None:
        """Return the engine's version, which results store as ``docker_version``."""
        with engine_errors():
            version = str(self.client.version()["Version"])
        return f"Podman {version}" if podman.is_engine(self.client) else version

    def cannot_run(self, system: System) -> str | None:
        """Return why no server of the system can be started, or None."""
        for part in system.parts:
            if part.service and not part.service.image and not (part.engine_dir / "service.py").is_file():
                return (
                    f"no image of {part.engine}'s server is pinned: add image to [service] in a copy of its engine's"
                    f" folder ({page('docs/guides/services.md')}), or ask a server that runs (harness attach)"
                )
        return super().cannot_run(system)

    def recipe(self, system: System) -> str:
        """Hash the inputs of the image; where no engine answers, of the image for this host's platform."""
        return recipes.recipe(system.for_platform(system.on_platform or self._platform or self._native))

    @cached_property
    def _native(self) -> str:
        if connection.is_local():  # an engine at the usual socket runs on this host
            return platforms.host()
        try:
            return emulation.native(self.client)
        except EngineError:
            return platforms.host()

    def find(self, system: System) -> Prepared | None:
        """Return the image, if it was built from exactly this recipe, with a driver that measures alike."""
        image = self._builder().find(system)
        there = image and (self._published(system) or not _published_name(system))
        return _prepared(system, image) if image and there else None

    def _published(self, system: System) -> DockerImage | None:
        """Return the published image of a system's server, if the engine has it."""
        if (name := _published_name(system)) is None:
            return None
        with engine_errors():
            try:
                return self.client.images.get(name)
            except docker.errors.NotFound:
                return None

    def _fetch_server(self, system: System) -> None:
        """Pull the published image of a system's server where it is missing.

        Raises:
            ImageError: it cannot be pulled, or it would write outside of its data and its scratch folders.
        """
        name, service_ = _published_name(system), system.service
        if name is None or service_ is None:
            return
        if (image := self._published(system)) is None:
            log.info(f"{system.name}: pulling {name}")
            try:
                image = self.client.images.pull(name)
            except docker.errors.APIError as error:
                why = one_line(str(error.explanation or error), 200)
                remedy = "pull or load it on this machine, or correct the digest"
                raise ImageError(f"system {system.name!r}: {name} cannot be pulled ({why}); {remedy}") from error
        volumes = (image.attrs["Config"].get("Volumes") or {}).keys() - {service_.index_path, *service_.scratch}
        if volumes:
            declared = ", ".join(sorted(volumes))
            raise ImageError(
                f"system {system.name!r}: {name} declares VOLUME {declared}; add it to scratch in [service]"
            )

    def prepare(self, system: System, stopped: threading.Event | None = None, progress: Progress = silent) -> Prepared:
        """Return the image, built where it is missing; ``stopped`` ends a build, ``progress`` takes its steps."""
        if self._emulated and self._platform:  # the image may be there from before a reboot, what runs it not
            emulation.ensure(self.client, self._platform, self.cache)
        with engine_errors():
            image = self._builder(stopped, progress).ensure(system)
            volumes = self.client.images.get(image.digest).attrs["Config"].get("Volumes")
        if volumes:
            # The engine would give each a writable folder on the host's disk, under a read-only root.
            raise ImageError(f"system {system.name!r}: its image declares VOLUME {', '.join(volumes)}; remove it")
        self._fetch_server(system)
        return _prepared(system, image)

    def prepare_all(self, systems: Mapping[str, System]) -> Iterator[tuple[str, Prepared | ImageError]]:
        """Prepare systems side by side."""
        self.check()  # one connection for all threads
        return side_by_side.make({name: partial(self.prepare, system) for name, system in systems.items()})

    def launch(self, job: LaunchRequest, progress: Progress) -> LaunchEnd:
        """Run one container from start to end and remove it.

        Raises:
            ImageError: its image is for another platform than the engine's.
        """
        if not self._emulated:
            container.refuse_emulation(self.client, job.prepared)
        envelope = job.spec.envelope
        with ExitStack() as stack:
            placement = stack.enter_context(cpu_placement.placed(envelope.cpus))
            if job.spec.service_url is not None:
                return service.launch(self.client, job, placement, self._canary, progress)
            job.write_spec(placement.cpuset)
            container.open_to_job_user(job)
            stack.enter_context(engine_errors())
            arguments = container.create_arguments(job, placement)
            try:
                made = stack.enter_context(container.created(self.client, arguments))
            except docker.errors.APIError as error:  # the engine answers, so other jobs may run
                return LaunchEnd(stopped=container.refused(error), placement=placement)
            seen = stack.enter_context(observed(job, placement, self._canary))
            seen.begin()
            if refused := made.start():
                return LaunchEnd(stopped=refused, placement=placement)
            with seen.sampling(partial(made.source, placement)):
                stopped = limit_mismatch(made.group, envelope, placement.cpuset) or seen.follow(
                    made.ended, progress, lambda: limit_change(made.group, placement.cpuset)
                )
                if stopped:
                    made.kill()
            ended = made.result()
            return seen.end(ended.exit_code, ended.log, stopped, oom_killed=ended.oom_killed)

    def throttle(self, job: LaunchRequest, quota: tuple[int, int]) -> None:
        """Set a CPU quota on the one running container of this job."""
        for running in self.client.containers.list(filters={"name": container.name_of(job)}, ignore_removed=True):
            if str(job.folder) in {mount["Source"] for mount in running.attrs["Mounts"]}:
                try:
                    running.update(cpu_quota=quota[0], cpu_period=quota[1])
                except docker.errors.NotFound as error:
                    if not podman.is_engine(self.client):
                        raise
                    fault = f"{self.engine_version()} cannot set a quota on a running job"
                    raise UsageError(f"{fault}; use a Docker engine") from error

    def sweep(self) -> int:
        """Remove containers whose harness process is certainly dead."""
        removed = 0
        with engine_errors():
            # Sparse: a look at each would fail for one that another run is removing.
            for found in self.client.containers.list(all=True, filters={"label": LABEL}, sparse=True):
                if has_died(found.attrs["Labels"][LABEL]):
                    found.attrs["Name"] = found.attrs["Names"][0]
                    container.remove(found)
                    removed += 1
        return removed

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()


def _published_name(system: System) -> str | None:
    return system.service.image if system.service else None


def _prepared(system: System, image: Image) -> Prepared:
    return Prepared(system.for_platform(image.platform), image.recipe, image.digest, image.digest, image.size_bytes)


def _engine_checks() -> Iterator[Check]:
    try:
        place = connection.endpoint()
        with closing(connection.connect(10)) as client:
            info = client.info()
    except EngineError as error:
        yield Check(Level.FAIL, "engine", "no Docker engine answers", str(error))
        return
    except (docker.errors.DockerException, requests.RequestException) as error:
        start = "start it (systemctl start docker) or install it (Debian: apt-get install docker.io)"
        if place.context:
            start = "start the engine of that context, or choose another (docker context use)"
        fact = f"no Docker engine answers: {connection.reason(error)}"
        yield Check(Level.FAIL, "engine", fact, f"{start}, or use --launcher process")
        return
    if (lacking := podman.check_limits(info)) is not None:
        yield lacking
    fact = f"{podman.name(info)} {info['ServerVersion']}, {info['Driver']}, {info['OperatingSystem']}, at {place}"
    yield Check(Level.OK, "engine", fact)
    for key, what in (("MemoryLimit", "memory limits"), ("PidsLimit", "pids limits"), ("CPUSet", "CPU sets")):
        if not info.get(key, True):
            yield Check(Level.FAIL, "limits", f"the engine cannot enforce {what}", "enable the cgroup controller")
    if not info.get("SwapLimit", True) and psutil.swap_memory().total:
        remedy = "boot with swapaccount=1, or turn swap off (swapoff -a)"
        yield Check(Level.FAIL, "limits", "the engine cannot limit swap, and the host has some", remedy)


def _cgroup_check() -> Check:
    version = cgroup.host_version()
    fact = "no memory controller in /sys/fs/cgroup" if version is None else f"version {version}"
    return warn_if(version is None, "cgroup", fact, "mount the cgroup file system, or use --launcher process")
