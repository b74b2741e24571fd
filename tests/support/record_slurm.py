"""Records what cgroup v1 shows inside a job of a real Slurm; see ``tests/data/clusters/README.md``.

scripts/with-cluster .venv/bin/python -m tests.support.record_slurm FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.cluster import cluster

# Known sizes, so that what the kernel shows can be held against them; all files of all ancestors that hold limits.
WORKLOAD = """
import pathlib, time
held = bytearray(b"x" * (48 << 20))
while time.process_time() < 0.5:
    pass
names = (
    "memory.limit_in_bytes memory.memsw.limit_in_bytes memory.usage_in_bytes memory.max_usage_in_bytes memory.stat "
    "memory.oom_control cpuset.cpus cpuset.effective_cpus cpuset.mems cpuset.effective_mems cpuacct.usage "
    "cpu.cfs_quota_us cpu.cfs_period_us cpu.shares cpu.stat pids.max pids.current"
).split()
membership = pathlib.Path("/proc/self/cgroup").read_text()
files = {"/proc/self/cgroup": membership}
for line in membership.splitlines():
    _, controllers, path = line.split(":", 2)
    if controllers not in ("memory", "cpuset", "cpu", "cpuacct", "pids", "cpu,cpuacct"):
        continue
    mount = pathlib.Path("/sys/fs/cgroup", controllers)
    own = mount / path.lstrip("/")
    for folder in (own, *own.parents):
        files[str(folder / "cgroup.procs")] = ""
        for name in names:
            # Counters of the ancestors tell of other jobs.
            if (folder / name).exists() and (folder == own or "stat" not in name):
                files[str(folder / name)] = (folder / name).read_text()
        if folder == mount:
            break
print("\\n".join(f"==> {name} <==\\n{content}" for name, content in files.items()), end="")
"""


def main(target: str) -> None:
    """Record a step of ``srun``, and the batch script that holds steps."""
    with cluster() as running:
        (running.folder / "workload.py").write_text(WORKLOAD)
        options = ("--cpus-per-task=1", "--mem=300M")
        for name, command in (
            ("slurm-22.05-v1-step", f"srun {' '.join(options)} python3 workload.py"),
            ("slurm-22.05-v1-batch", "python3 workload.py"),
        ):
            job = running.sbatch(command, *options)
            assert running.wait(job) == "COMPLETED", running.output(job)
            (Path(target) / f"{name}.inside").write_text(running.output(job), encoding="ascii")


if __name__ == "__main__":
    main(*sys.argv[1:])
