"""Child processes and their environment: an allow-list, because ours may hold tokens and passwords."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

# What a program needs to start, to find its files and to speak the user's language.
_ALWAYS = (
    *("PATH", "HOME", "USER", "LOGNAME", "TZ", "TMPDIR", "LANG", "LANGUAGE", "LC_*", "XDG_CACHE_HOME", "XDG_CONFIG_*"),
    *("PYTHONPATH", "PYTHONHOME", "PYTHONPYCACHEPREFIX", "VIRTUAL_ENV", "LD_LIBRARY_PATH"),
)
# How the user's network is reached.
NETWORK = (
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
)
PIP = (*NETWORK, "PIP_*")
HUB = (*NETWORK, "HF_*", "HUGGING_FACE_HUB_TOKEN")  # the token by its older name, too
# The allocation that this process runs in, and the user's systemd.
SLURM = ("SLURM_*", "SLURMD_*", "MUNGE_*")
SYSTEMD = ("XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")
# Another harness, which works with the same credentials.
HARNESS = (*NETWORK, "AWS_*", "HARNESS_*", "HF_*", "PIP_*", "DOCKER_*", *SLURM, *SYSTEMD)


def environment(*more: str, **own: str) -> dict[str, str]:
    """Return the variables of this process that a child may see.

    Args:
        more: patterns of further names that this kind of child needs, such as :data:`PIP`.
        own: variables that the child gets with these values.
    """
    allowed = (*_ALWAYS, *more)
    seen = {name: value for name, value in os.environ.items() if any(fnmatchcase(name, each) for each in allowed)}
    return {**seen, **own}


# Set before the command runs; the parent may have died before that.
_WITH_PARENT = """import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() != int(sys.argv[1]): sys.exit(1)
os.execvp(sys.argv[2], sys.argv[2:])
"""


def ends_with_us(command: Sequence[str]) -> list[str]:
    """Return a command that gets SIGTERM when this process ends, even after a ``kill -9``."""
    return [sys.executable, "-I", "-c", _WITH_PARENT, str(os.getpid()), *command]


def run(
    command: Sequence[str | Path], *more: str, cwd: Path | None = None, timeout_s: float | None = None, **own: str
) -> subprocess.CompletedProcess[str]:
    """Run a program of the host to its end; return its exit code and what it printed.

    Args:
        command: the program and its arguments.
        more: as of :func:`environment`.
        cwd: its working folder.
        timeout_s: after which it is killed.
        own: as of :func:`environment`.

    Raises:
        OSError: it does not start.
        subprocess.TimeoutExpired: it took longer than ``timeout_s``.
    """
    return subprocess.run(
        command,
        env=environment(*more, **own),
        cwd=cwd,
        timeout=timeout_s,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )


def kill_group(child: subprocess.Popen[bytes]) -> None:
    """Kill a child that has a process group of its own, and all processes of that group."""
    with suppress(ProcessLookupError):  # all ended by themselves
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
