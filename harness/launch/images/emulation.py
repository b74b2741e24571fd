"""Emulation of other platforms than the Docker engine's.

Only builds and checks of images use it; nothing is measured under emulation.
"""

from __future__ import annotations

import functools
import logging
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import docker
from docker.errors import APIError, BuildError, ContainerError

from harness import child_process, filesystem
from harness.commands import words
from harness.errors import ImageError
from harness.launch.connection import engine_errors
from harness.launch.images import platforms

log = logging.getLogger(__name__)


def install_package(name: str) -> str | None:
    """Install a Debian package, as root; return None, or why it could not be installed."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return f"only root on Debian or Ubuntu can install {name} here"
    log.info(f"installing {name} with apt-get, as root")
    for arguments in (["update", "-qq"], ["install", "-qq", "--no-install-recommends", name]):
        command = ["apt-get", *arguments]
        done = child_process.run(command, *child_process.NETWORK, DEBIAN_FRONTEND="noninteractive")
        if done.returncode != 0:
            last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
            return f"'apt-get {arguments[0]}' failed: {last}"
    return None


# The kernel's list of interpreters of programs.
_BINFMT = Path("/proc/sys/fs/binfmt_misc")
# The entries of Debian's qemu-user-static; with flag F, so that containers need no qemu.
_BINFMT_CONFIG = Path("/usr/lib/binfmt.d")
_PROBE = "harness-probe"

# exit(0) in machine code, and the machine's number in an ELF header.
_EXIT = {
    platforms.AMD64: (62, bytes.fromhex("31ff b83c000000 0f05")),  # xor edi,edi; mov eax,60; syscall
    platforms.ARM64: (183, bytes.fromhex("000080d2 a80b80d2 010000d4")),  # mov x0,#0; mov x8,#93; svc #0
}


@functools.lru_cache(maxsize=8)  # each job asks, and each answer takes 10 ms
def native(client: docker.DockerClient) -> str:
    """Return the Docker engine's own platform.

    Raises:
        EngineError: it does not answer.
    """
    with engine_errors():
        return platforms.of_machine(str(client.version()["Arch"]))


def ensure(client: docker.DockerClient, platform: str, cache: Path) -> None:
    """Make sure that the Docker engine runs programs of a platform; as root on Debian, install an emulator.

    Raises:
        ImageError: the engine does not run them; says what to install.
        EngineError: it does not answer.
    """
    own = native(client)
    if platform == own or engine_runs(client, platform):
        return
    with filesystem.cache_lock(cache, "emulation"):
        if engine_runs(client, platform):
            return
        failure = _install_emulator(platform)
        if not engine_runs(client, platform):
            short = platforms.debian(platform)
            raise ImageError(
                f"this engine ({own}) does not run programs of {platform}{f' ({failure})' if failure else ''}: "
                "'apt-get install qemu-user-static binfmt-support' on its host (where a registry answers also"
                f" 'docker run --privileged --rm tonistiigi/binfmt --install {words(short)}'), or build them on an"
                f" {short} machine"
            )


def engine_runs(client: docker.DockerClient, platform: str) -> bool:
    """Check by a trial that a container of a platform runs."""
    tag = f"{_PROBE}:{platforms.debian(platform)}-{os.getpid()}"
    with engine_errors(), _probe(platform) as program:
        recipe = f'FROM scratch\nCOPY {program.name} /probe\nENTRYPOINT ["/probe"]\n'
        (program.parent / "Dockerfile").write_text(recipe, encoding="ascii")
        try:
            client.images.build(path=str(program.parent), tag=tag, platform=platform, rm=True, use_config_proxy=False)
        except BuildError as error:
            raise ImageError(f"the engine cannot build images for {platform}: {str(error)[:200]}") from error
        try:
            client.containers.run(tag, remove=True, network_mode="none", platform=platform)
        except (ContainerError, APIError):
            return False
        finally:
            client.images.remove(tag, force=True)
    return True


def host_runs(platform: str) -> bool:
    """Check by a trial that this host runs programs of a platform."""
    with _probe(platform) as program:
        try:
            return subprocess.run([program], check=False, env={}).returncode == 0
        except OSError:
            return False


@contextmanager
def _probe(platform: str) -> Iterator[Path]:
    """Write a program of a platform into a temporary folder."""
    with filesystem.temporary_folder("probe") as folder:
        program = folder / "probe"
        program.write_bytes(_program(platform))
        program.chmod(0o755)
        yield program


def _program(platform: str) -> bytes:
    """Return a static executable of a platform that exits at once."""
    machine, code = _EXIT[platform]
    size, start = 64 + 56 + len(code), 0x400000
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 2, machine, 1, start + 120, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    return header + struct.pack("<IIQQQQQQ", 1, 5, 0, start, start, size, size, 0x10000) + code


def _install_emulator(platform: str) -> str | None:
    """Install an emulator on this host and register it; return None, or the reason of a failure."""
    listed = _BINFMT_CONFIG / f"qemu-{platforms.kernel(platform)}.conf"
    if not listed.is_file() and (failure := install_package("qemu-user-static")):
        return failure
    try:
        if not (_BINFMT / "register").exists():
            command = ["mount", "-t", "binfmt_misc", "binfmt_misc", str(_BINFMT)]
            subprocess.run(command, check=True, capture_output=True, env=child_process.environment())
        if not (_BINFMT / listed.stem).exists():
            log.info(f"this host now runs programs of {platform} with qemu, until 'echo -1 > {_BINFMT / listed.stem}'")
            (_BINFMT / "register").write_bytes(listed.read_bytes().strip())
    except (OSError, subprocess.CalledProcessError) as error:
        return f"qemu cannot be listed with the kernel: {error}"
    return None
