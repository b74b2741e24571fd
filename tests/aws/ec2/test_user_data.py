"""The script that makes a machine a worker: small, without secrets, and whole."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.aws import worker
from harness.aws.clients import Connections, S3Uri
from harness.aws.ec2 import user_data as script
from harness.aws.ec2.user_data import render_user_data
from harness.aws.objects import Objects
from harness.errors import UsageError
from harness.remote import records
from harness.remote.bundle import pins
from harness.remote.records import MOST_BYTES, Heartbeat, ShippedInput, WorkerEnd, read
from tests.aws import server
from tests.aws.server import ACCESS_KEY, ACCOUNT
from tests.remote.conftest import WORK
from tests.remote.planning import WORKER_ID

OPTIONS: dict[str, Any] = {
    "work": S3Uri("a-bucket", "it's/here"),
    "run_id": "s-1",
    "part": "0001",
    "bundle": ShippedInput("inputs/b.tar.gz", "0" * 64, 7),
    "region": "eu-1",
    "limit_s": 3600,
    "gpus": False,
}


def user_data(**changes: object) -> str:
    return render_user_data(**(OPTIONS | changes))


def test_user_data_is_a_valid_bash_script() -> None:
    text = user_data()
    assert text.startswith("#!/bin/bash\n") and len(text.encode()) < script.MAXIMUM_USER_DATA_BYTES
    assert not re.search(r"@[A-Z0-9_]+@", text)
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)


@pytest.mark.tools
def test_shellcheck_finds_nothing() -> None:
    done = subprocess.run(["shellcheck", "-"], input=user_data(), text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout


def test_user_data_keeps_special_characters() -> None:
    lines = [line for line in user_data().splitlines() if re.match(r"work=|export AWS_REGION", line)]
    script = "\n".join([*lines, 'printf "%s|" "$work" "$run" "$part" "$bundle" "$limit_s" "$gpus" "$AWS_REGION"'])
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "s3://a-bucket/it's/here|s-1|0001|inputs/b.tar.gz|3600|no|eu-1|"
    assert "gpus=yes" in user_data(gpus=True)


def test_the_time_limit_comes_before_all_else() -> None:
    text = user_data()
    assert (
        text.index("trap off EXIT") < text.index('shutdown -P "+') < text.index("mkdir -p") < text.index("install -y")
    )


def test_oversize_prefix_is_refused() -> None:
    with pytest.raises(UsageError, match=r"user data has [0-9,]+ bytes; EC2 takes 16,384"):
        user_data(work=S3Uri("a-bucket", "x" * 16_000))
    user_data(work=S3Uri("a-bucket", "x" * 900))


def test_user_data_with_a_secret_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="AWS key"):
        user_data(work=S3Uri("a-bucket", ACCESS_KEY))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush-hush")
    with pytest.raises(UsageError, match="AWS key"):
        user_data(work=S3Uri("a-bucket", "hush-hush"))
    user_data()


def test_work_place_with_an_account_number_is_refused() -> None:
    with pytest.raises(UsageError, match="twelve digits") as caught:
        user_data(work=S3Uri("data-999988887777-x"))
    assert "999988887777" not in str(caught.value)
    user_data(work=S3Uri("data-1999988887777-x", "99998888777"))


@pytest.mark.parametrize("change", [{"run_id": "a b"}, {"part": "$(x)"}, {"region": ""}, {"limit_s": 0}])
def test_wrong_option_of_user_data_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        user_data(**change)


def test_pins_hold_all_dependencies_of_boto3() -> None:
    packages = pins(*script.BOTO3)
    assert all(re.fullmatch(r"[a-z0-9-]+==\S+( --hash=sha256:[0-9a-f]{64})+", line) for line in packages)
    needed, waiting = set(), ["boto3"]
    while waiting:
        name = waiting.pop()
        needed.add(name)
        for line in importlib.metadata.requires(name) or ():
            if "extra ==" not in line and (found := re.match(r"[a-z0-9-]+", line)) and found[0] not in needed:
                waiting.append(found[0])
    assert needed == set(script.BOTO3)


STUB = """#!/bin/bash
echo "{name} $*" >>"$CALLS"
{body}
"""
# A virtual environment's Python: its commands fail where the test wants it.
PYTHON = r"""
case "$*" in
    *pip*boto3.txt*) what=boto3 ;; *pip*requirements.lock*) what=packages ;; *docker.sock*) what=engine ;;
    *boot.py\ greet*) what=greet ;; *boot.py\ fetch*) what=fetch ;; *boot.py\ end*) what=end ;;
    *aws.worker*) what=agent ;;
esac
[[ $FAILS != "$what" ]] || exit "${CODE:-1}"
"""


class Machine:
    """A machine of stubs: Amazon Linux's package manager, or Debian's."""

    def __init__(self, folder: Path, manager: str, fails: str = "", code: int = 1) -> None:
        self.folder, self.root, self.fails, self.code = folder, folder / "root", fails, code
        (folder / "bin").mkdir()
        venv = f'mkdir -p "$3/bin"; cp {folder}/python "$3/bin/python"; [[ $FAILS != venv ]]'
        self.stub(
            "python3.11", f"[[ $1 == -m ]] || [[ -e {folder}/installed ]] || exit 1\n[[ $1 != -m ]] || {{ {venv}; }}"
        )
        self.stub(manager, f"[[ $FAILS != packages-of-the-system ]] || exit 1\ntouch {folder}/installed")
        for name in ("shutdown", "poweroff", "setsid", "sleep", "systemctl", "sysctl", "nvidia-smi"):
            self.stub(name, "[[ $FAILS != " + name + " ]]")
        (folder / "python").write_text(STUB.format(name="venv", body=PYTHON))
        (folder / "python").chmod(0o755)
        for name in ("bash", "mkdir", "cp", "touch", "cat", "chmod", "tail"):
            (folder / "bin" / name).symlink_to(str(shutil.which(name)))

    def stub(self, name: str, body: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(STUB.format(name=name, body=body))
        path.chmod(0o755)

    def boot(self, **changes: object) -> list[str]:
        """Boot to the end; the commands that were called."""
        calls = self.folder / "calls"
        variables = {"PATH": str(self.folder / "bin"), "CALLS": str(calls), "FAILS": self.fails, "CODE": str(self.code)}
        script = self.folder / "user-data"
        script.write_text(user_data(**changes))
        variables |= {"HARNESS_WORKER_ROOT": str(self.root), "HARNESS_WORKER_CONSOLE": str(self.folder / "console")}
        subprocess.run(["/bin/bash", str(script)], env=variables, check=False, timeout=120, capture_output=True)
        return calls.read_text().splitlines()


@pytest.mark.parametrize(
    ("manager", "installs"),
    [
        ("dnf", "dnf install -y -q python3.11 python3.11-pip ca-certificates"),
        (
            "apt-get",
            "apt-get -o DPkg::Lock::Timeout=300 install -qq --no-install-recommends python3.11 python3.11-venv",
        ),
    ],
)
def test_user_data_runs_the_agent_and_powers_off(tmp_path: Path, manager: str, installs: str) -> None:
    calls = Machine(tmp_path, manager).boot()
    assert calls[0] == "shutdown -P +60"
    assert calls[-3:] == ["shutdown -P now", "sleep 60", "poweroff -f"]
    assert any(line.startswith(installs) for line in calls)
    order = [
        "boto3.txt",
        "boot.py greet",
        "boot.py fetch",
        "requirements.lock",
        "harness.aws.worker s3://a-bucket/it's",
    ]
    places = [next(number for number, line in enumerate(calls) if what in line) for what in order]
    assert places == sorted(places)
    assert not [line for line in calls if "boot.py end" in line]
    assert "systemctl mask --now --no-block ecs.service" in calls


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fails", "step"),
    [
        ("packages-of-the-system", None),
        ("venv", "installing boto3"),
        ("boto3", "installing boto3"),
        ("greet", "writing to s3://a-bucket/it's/here"),
        ("fetch", "fetching harness"),
        ("engine", "installing the engine"),
        ("packages", "installing harness' packages"),
        ("nvidia-smi", "looking for GPUs"),
        ("agent", None),
        ("shutdown", None),
        # The limit that is left will do; what cannot be masked is no reason to stop; it may not panic.
        ("setsid", None),
        ("systemctl", None),
        ("sysctl", None),
    ],
)
def test_failed_step_is_reported_and_powers_off(tmp_path: Path, fails: str, step: str | None) -> None:
    calls = Machine(tmp_path, "dnf", fails).boot(gpus=True)
    assert calls[0] == "shutdown -P +60"
    assert calls[-3:] == ["shutdown -P now", "sleep 60", "poweroff -f"]
    ends = [line.partition("boot.py end ")[2] for line in calls if "boot.py end" in line]
    assert ends == ([f"{step} 1"] if step else []), "Python is missing, or the agent writes its end"
    began = any("harness.aws.worker" in line for line in calls)
    assert began or fails not in ("agent", "setsid", "systemctl", "sysctl")


@pytest.mark.parametrize(("code", "written"), [(1, False), (2, True), (137, False), (143, False)])
def test_end_is_written_for_an_agent_that_could_not_begin(tmp_path: Path, code: int, written: bool) -> None:
    calls = Machine(tmp_path, "dnf", "agent", code).boot()
    ends = [line.partition("boot.py end ")[2] for line in calls if "boot.py end" in line]
    assert ends == ([f"running the agent {code}"] if written else [])
    assert calls[-3:] == ["shutdown -P now", "sleep 60", "poweroff -f"]


def boot_script(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run boot.py as user data writes it, with this Python."""
    found = re.search(r"boot\.py\" <<'END'\n(.*?)\nEND\n", user_data(), re.DOTALL)
    assert found
    folder.mkdir(exist_ok=True)
    (folder / "boot.py").write_text(found[1])
    variables = {"WORK": str(WORK), "HARNESS_WORKER_ROOT": str(folder)}
    return subprocess.run(
        [sys.executable, str(folder / "boot.py"), *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def test_boot_script_writes_to_the_workers_folder(work: Objects, tmp_path: Path, aws: str) -> None:
    server.identify(aws, ACCESS_KEY, WORKER_ID)
    assert worker.worker_id(Connections(server.REGION)) == WORKER_ID
    folder = work.below(records.worker(WORKER_ID))
    assert boot_script(tmp_path, "greet").returncode == 0
    heartbeat = read(Heartbeat, "heartbeat", folder.get(records.HEARTBEAT, MOST_BYTES) or b"")
    assert heartbeat.phase == "installing"
    (tmp_path / "log.txt").write_text(f"of {ACCOUNT} with {ACCESS_KEY}\n")
    assert boot_script(tmp_path, "end", "installing boto3", "7").returncode == 0
    end = read(WorkerEnd, "end", folder.get(records.END, MOST_BYTES) or b"")
    assert (
        not end.ok
        and end.detail == "the machine could not be set up: installing boto3 ended with exit code 7; see its log"
    )
    assert folder.get(records.LOG, 100) == b"of <hidden> with <hidden>\n"
    assert boot_script(tmp_path, "end", "another", "8").returncode != 0
    assert read(WorkerEnd, "end", folder.get(records.END, MOST_BYTES) or b"") == end, "the first end stays"
    assert len(list(work.list())) == 3


def test_bundle_with_another_hash_is_not_unpacked(work: Objects, tmp_path: Path) -> None:
    work.put("inputs/b.tar.gz", b"x")
    done = boot_script(tmp_path, "fetch", "inputs/b.tar.gz", "0" * 64)
    assert done.returncode != 0 and "the bundle is not what was shipped" in done.stderr
    assert not (tmp_path / "bundle").exists()


def test_sigterm_powers_the_machine_off(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "dnf")
    (tmp_path / "python").write_text(
        STUB.format(name="venv", body='case "$*" in *aws.worker*) kill -TERM $PPID ;; esac')
    )
    assert machine.boot()[-3:] == ["shutdown -P now", "sleep 60", "poweroff -f"]


def test_second_boot_only_powers_off(tmp_path: Path) -> None:
    """Its limits died with the first, and user data runs once."""
    machine = Machine(tmp_path, "dnf")
    calls = machine.boot()
    unit = machine.root / "harness-once.service"
    text = unit.read_text()
    assert "poweroff" in text and "WantedBy=basic.target" in text
    assert calls.index(f"systemctl enable {unit}") < next(i for i, line in enumerate(calls) if "install" in line)
    assert "sysctl -q -w kernel.panic=10" in calls
    assert not [line for line in calls if "start" in line and unit.name in line], "not before the second"


def test_failure_before_s3_is_reached_is_on_the_console(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "dnf", "packages-of-the-system")
    # Powering off takes a while; its output is on the console by then.
    wait = f"until /bin/grep -q 'try 5 of 5' {tmp_path}/console; do /bin/sleep 0.02; done"
    machine.stub("sleep", f"[[ $1 != 60 ]] || {wait}")
    machine.boot()
    assert "boot: failed (try 5 of 5): install_packages" in (tmp_path / "console").read_text()


def test_user_data_works_without_a_console(tmp_path: Path) -> None:
    (tmp_path / "console").mkdir()
    assert [line for line in Machine(tmp_path, "dnf").boot() if "harness.aws.worker" in line]
