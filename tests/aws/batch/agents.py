"""An image for agents, as the official Python image is, made of what this machine has; and the host's side of it.

Nothing is downloaded: its ``pip`` hands out the packages that the tests themselves run with.
"""

from __future__ import annotations

import io
import os
import shutil
import site
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import docker

from harness import config
from harness.launch.images import base_image
from tests.aws import server

# What jobs mount, and this process' own place in it.
MOUNTED = Path("/var/lib/harness")
HOST = MOUNTED / f"test-{os.getpid()}"
NAME = "harness-test-agent"
_PIP = """
import pathlib, sys
arguments = sys.argv[1:]
assert "--require-hashes" in arguments, arguments
target = pathlib.Path(arguments[arguments.index("--target") + 1])
pins = pathlib.Path(arguments[arguments.index("-r") + 1]).read_text()
assert "--hash=sha256:" in pins, pins
for each in pathlib.Path({site!r}).iterdir():
    if each.name not in ("pip", "harness") and each.suffix != ".pth":
        (target / each.name).symlink_to(each)
"""


def _linked(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _clear(place: Path) -> None:
    """Remove the folder of this process; never through a mount, which shows the tests' own packages."""
    while f" {place} " in Path("/proc/self/mounts").read_text():
        subprocess.run(["umount", "--lazy", str(place)], check=True)
    shutil.rmtree(HOST, ignore_errors=True)


@contextmanager
def packages() -> Iterator[Path]:
    """Show containers of agents the tests' own packages, which they may not change."""
    place = HOST / "site"
    _clear(place)
    place.mkdir(parents=True)
    [own] = [Path(each) for each in site.getsitepackages() if (Path(each) / "boto3").is_dir()]
    mount = ["mount", "--bind", "-o", "ro", str(own), str(place)]
    try:
        if subprocess.call(mount, stderr=subprocess.DEVNULL):  # not where this host forbids it: they get a copy
            _clear(place)
            left_out = shutil.ignore_patterns("playwright", "__pycache__", "mypy*", "*.pth")
            shutil.copytree(own, place, copy_function=_linked, ignore=left_out, symlinks=True)
        yield place
    finally:
        _clear(place)


# Signs as the ECS task that the container is: ``tests/aws/moto_server.py`` knows these keys.
_CREDENTIALS = """
import hashlib, json, os
task = f"{{os.environ['AWS_BATCH_JOB_ID']}} {{os.environ.get('AWS_BATCH_JOB_ATTEMPT', '1')}}"
key = "AKIAEXAMPLE7" + hashlib.sha256(task.encode()).hexdigest()[:8].upper()
print(json.dumps({{"Version": 1, "AccessKeyId": key, "SecretAccessKey": {secret!r}, "SessionToken": {token!r}}}))
"""
_CONFIG = "[default]\ncredential_process = python3 /opt/credentials.py\n"


@contextmanager
def image(engine: docker.DockerClient, variables: dict[str, str]) -> Iterator[str]:
    """An image whose containers have this environment, but for credentials; its name."""
    base = base_image.ensure(engine, config.default_cache_folder().expanduser())
    own_keys = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    variables = {name: value for name, value in variables.items() if name not in own_keys}
    variables |= {"AWS_CONFIG_FILE": "/opt/aws-config", "HARNESS_WORKER_ROOT": str(HOST)}
    with packages() as own:
        lines = [f"FROM {base}", "COPY pip.py /usr/lib/python3/dist-packages/pip.py"]
        lines += ["COPY credentials.py aws-config /opt/"]
        lines += [f'ENV {name}="{value}"' for name, value in variables.items()]
        files = {
            "Dockerfile": "\n".join(lines),
            "pip.py": _PIP.format(site=str(own)),
            "credentials.py": _CREDENTIALS.format(secret=server.SECRET_KEY, token=server.TOKEN),
            "aws-config": _CONFIG,
        }
        context = io.BytesIO()
        with tarfile.open(fileobj=context, mode="w") as tar:
            for name, text in files.items():
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode = len(text.encode()), 0o644
                tar.addfile(entry, io.BytesIO(text.encode()))
        context.seek(0)
        tag = f"{NAME}-{os.getpid()}:latest"
        engine.images.build(fileobj=context, custom_context=True, tag=tag, network_mode="none", rm=True, forcerm=True)
        try:
            yield tag
        finally:
            engine.images.remove(tag, force=True)


def siblings(engine: docker.DockerClient) -> list[str]:
    """Containers that agents of this process have started and that are still there."""
    found = engine.containers.list(all=True, filters={"label": "harness.aws.batch"}, ignore_removed=True)
    return [str(each.id) for each in found if each.labels["harness.aws.batch"].startswith(f"{HOST}/")]
