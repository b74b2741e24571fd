#!/bin/bash
# harness: one part of a suite.  This machine powers off when it is done, when anything fails, and at its time limit.
set -euo pipefail
umask 022

work=@WORK@ run=@RUN@ part=@PART@ bundle=@BUNDLE@ bundle_sha256=@BUNDLE_SHA256@ limit_s=@LIMIT_S@ gpus=@GPUS@
export AWS_REGION=@REGION@ AWS_DEFAULT_REGION=@REGION@
root=${HARNESS_WORKER_ROOT:-/var/lib/harness} console=${HARNESS_WORKER_CONSOLE:-/dev/console} unit=harness-once.service
step="setting the time limit"

off() { # whatever happened
    local code=$?
    trap - EXIT
    set +e
    # An agent that could begin (its code is not 2) writes its own end record.
    if [[ $code -ne 0 && ($step != "running the agent" || $code -eq 2) && -x $root/venv/bin/python ]]; then
        "$root/venv/bin/python" "$root/boot.py" end "$step" "$code"
    fi
    shutdown -P now
    sleep 60
    poweroff -f
}
trap off EXIT
trap 'exit 143' TERM INT HUP

shutdown -P "+$(((limit_s + 59) / 60))"
# Should that be called off or forgotten: on its own, a minute later.
setsid bash -c "sleep $((limit_s + 60)); shutdown -P now; sleep 60; poweroff -f" </dev/null >/dev/null 2>&1 &

step="making $root"
mkdir -p "$root"
exec >>"$root/log.txt" 2>&1 </dev/null
# Until this script can write to S3, only EC2's console output shows its log; nothing is measured yet.
tail --pid=$$ -n +1 -f "$root/log.txt" >"$console" 2>/dev/null &
console_pid=$!

# Both limits die with a reboot, and this script runs once: a machine that boots again does nothing but power off.
cat >"$root/$unit" <<'END'
[Unit]
Description=harness: no second boot
[Service]
Type=oneshot
ExecStart=/bin/sh -c "systemctl poweroff || poweroff -f"
[Install]
WantedBy=basic.target
END
if command -v systemctl >/dev/null; then systemctl enable "$root/$unit" || echo "boot: a second boot is not prevented"; fi
sysctl -q -w kernel.panic=10 || true # seconds, then it boots again

export HOME=/root DEBIAN_FRONTEND=noninteractive HARNESS_WORKER_ROOT=$root

again() { # CMD: until it succeeds, five times at most
    local try
    for try in 1 2 3 4 5; do
        "$@" && return 0
        echo "boot: failed (try $try of 5): $1"
        sleep $((try * 5))
    done
    return 1
}

install_packages() {
    if command -v dnf >/dev/null; then
        dnf install -y -q "$@"
    else
        apt-get update -qq && apt-get -o DPkg::Lock::Timeout=300 install -qq --no-install-recommends "$@"
    fi
}

if command -v systemctl >/dev/null; then
    step="keeping other work off this machine"
    for unit in ecs.service unattended-upgrades.service {apt-daily,apt-daily-upgrade,dnf-makecache}.timer; do
        systemctl mask --now --no-block "$unit" || true
    done
fi

step="installing Python 3.11"
if ! python3.11 -c 'import ensurepip, venv'; then
    if command -v dnf >/dev/null; then python=(python3.11 python3.11-pip); else python=(python3.11 python3.11-venv); fi
    again install_packages "${python[@]}" ca-certificates
fi

step="installing boto3"
[[ -x $root/venv/bin/python ]] || python3.11 -m venv "$root/venv"
pip=("$root/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input)
# Only a few modules are ever imported: compiling them all would take most of the time.
pip+=(--no-deps --require-hashes --only-binary ':all:' --no-compile)
cat >"$root/boto3.txt" <<'END'
@PINS@
END
again "${pip[@]}" -r "$root/boto3.txt"

cat >"$root/boot.py" <<'END'
"""boot.py greet | fetch WHERE SHA256 | end STEP CODE: steps before harness is installed."""
import hashlib, json, os, pathlib, re, shutil, sys
import boto3

bucket, _, prefix = os.environ["WORK"].removeprefix("s3://").partition("/")
root = pathlib.Path(os.environ["HARNESS_WORKER_ROOT"])
s3, worker = boto3.client("s3"), boto3.client("sts").get_caller_identity()["UserId"]  # ROLE:INSTANCE


def key(*names):
    return "/".join(filter(None, (prefix, *names)))


def put(name, content, **how):
    s3.put_object(Bucket=bucket, Key=key("workers", worker, name), Body=content, **how)


def record(**more):
    return json.dumps({**more, "version": @VERSION@}).encode()


if sys.argv[1] == "greet":
    put("heartbeat.json", record(phase="installing"))
elif sys.argv[1] == "fetch":
    path = root / "bundle.tar.gz"
    s3.download_file(bucket, key(sys.argv[2]), str(path))
    if hashlib.sha256(path.read_bytes()).hexdigest() != sys.argv[3]:
        sys.exit("boot: the bundle is not what was shipped")
    shutil.unpack_archive(path, root / "bundle")
elif sys.argv[1] == "end":
    detail = f"the machine could not be set up: {sys.argv[2]} ended with exit code {sys.argv[3]}; see its log"
    log = re.sub(rb"\b\d{12}\b|A[KS]IA[A-Z0-9]{12,}", b"<hidden>", (root / "log.txt").read_bytes()[-65536:])
    try:
        put("end.json", record(ok=False, detail=detail), IfNoneMatch="*")
    finally:
        put("log.txt", log)
END
export WORK=$work

step="writing to $work"
again "$root/venv/bin/python" "$root/boot.py" greet
step="fetching harness"
again "$root/venv/bin/python" "$root/boot.py" fetch "$bundle" "$bundle_sha256"

step="installing the engine"
answers() {
    "$root/venv/bin/python" -c 'import socket as s; c = s.socket(s.AF_UNIX); c.settimeout(5)
c.connect("/var/run/docker.sock"); c.sendall(b"GET /_ping HTTP/1.0\r\nHost: d\r\n\r\n"); assert b" 200 " in c.recv(64)' 2>/dev/null
}
if ! answers; then
    if ! command -v dockerd >/dev/null; then
        if command -v dnf >/dev/null; then docker=(docker); else docker=(docker.io iptables); fi
        again install_packages "${docker[@]}"
    fi
    systemctl enable --now docker
    for _ in {1..60}; do
        if answers; then break; fi
        sleep 2
    done
    answers
fi
if [[ $gpus == yes ]]; then
    step="looking for GPUs"
    nvidia-smi
fi

step="installing harness' packages"
again "${pip[@]}" -r "$root/bundle/requirements.lock"

step="running the agent"
kill "$console_pid" || true
cd "$root"
PYTHONPATH=$root/bundle "$root/venv/bin/python" -m harness.aws.worker "$work" "$run" "$part"
