"""Slurm as a backend without Slurm: scripts, what its commands print in several versions, and states of parts."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.driver.records import Envelope
from harness.errors import RemoteError, UsageError
from harness.jobs.inputs import IndexBuild
from harness.launch.checks import Level
from harness.remote import claims, folder_worker, journal, records, slurm_queue
from harness.remote.backend import ENDED, RUNNING, WAITING, PartState
from harness.remote.options import SlurmOptions
from harness.remote.records import Launch, PartJob, PlannedPart, RemoteRun, ShippedInput, WorkerEnd, dump, fetch
from harness.remote.shared_folder import SharedFolder, open_folder
from harness.remote.slurm import OWN_MIB, SlurmBackend
from harness.remote.worker import STOPPED
from harness.results.schema import Cell
from tests.support.command_line import assert_refused, call

GIB = 1 << 30
RUN = "s-20261129T000000-abcdef"

# ---- what Slurm's commands print

# Slurm 22.05.8, recorded: squeue --me --noheader --array --states=all -o "%F|%K|%T|%N|%j|%r"
QUEUE_22 = f"""\
5|N/A|PENDING||dep|Dependency
6|1|CANCELLED||harness-{RUN}-0002|DependencyNeverSatisfied
4|3|PENDING||harness-{RUN}-0001|Resources
4|1|COMPLETED|vm|harness-{RUN}-0001|None
4|2|RUNNING|vm|harness-{RUN}-0001|None
2|N/A|FAILED|vm|sb.sh|NonZeroExitCode
9|1|FAILED||harness-{RUN}-0003|BadConstraints
"""
# By their documentation: a reason that names nodes and holds the separator, a state of 24.05, one that is unknown.
QUEUE_25 = f"""\
7|1|PENDING||harness-{RUN}-0001|ReqNodeNotAvail, UnavailableNodes:n[01-04]|n9
7|2|EXPEDITING|n01|harness-{RUN}-0001|None
7|3|REQUEUE_HOLD||harness-{RUN}-0001|launch failed requeued held
7|4|COMPLETING|n01|harness-{RUN}-0001|None
7|[5-9%2]|PENDING||harness-{RUN}-0001|JobArrayTaskLimit
slurm_load_jobs: a line of another kind
7|5
"""
# By the documentation of sacct --parsable2: 22 and 23, and 24 with flags behind the state.
ACCOUNTS_22 = """\
4_1|COMPLETED|vm|a
4_2|CANCELLED by 1001|vm|a
4_3|NODE_FAIL|vm|a
4_[4-6]|PENDING|None assigned|a
12|COMPLETED|vm|no array
"""
ACCOUNTS_24 = """\
4_1|OUT_OF_MEMORY|n01|a|b
4_2|TIMEOUT+SIGNALED|n01|a
4_3|PREEMPTED|n01|a
4_4|REQUEUED|n02|a
"""


def test_queue_holds_the_tasks_of_arrays_alone() -> None:
    shown = {
        task.task_id: (task.state, task.phase, task.node, task.reason) for task in slurm_queue.parse_queue(QUEUE_22)
    }
    assert shown == {
        "6_1": ("CANCELLED", ENDED, "", "DependencyNeverSatisfied"),
        "4_3": ("PENDING", WAITING, "", "Resources"),
        "4_1": ("COMPLETED", ENDED, "vm", ""),
        "4_2": ("RUNNING", RUNNING, "vm", ""),
        "9_1": ("FAILED", ENDED, "", "BadConstraints"),
    }


def test_queue_of_newer_versions_is_read_and_unknown_states_are_no_end() -> None:
    tasks = list(slurm_queue.parse_queue(QUEUE_25))
    assert [(task.index, task.phase, task.words) for task in tasks] == [
        (1, WAITING, "waits for Slurm (ReqNodeNotAvail, UnavailableNodes:n[01-04]|n9)"),
        (2, RUNNING, "expediting on n01"),
        (3, WAITING, "waits for Slurm (launch failed requeued held)"),
        (4, RUNNING, "completing on n01"),
    ]


def test_accounts_say_how_tasks_ended() -> None:
    assert [(task.task_id, task.words) for task in slurm_queue.parse_accounts(ACCOUNTS_22)] == [
        ("4_1", "the task ended (Slurm's task 4_1 on vm)"),
        ("4_2", "the task was cancelled (Slurm's task 4_2 on vm)"),
        ("4_3", "the node failed (Slurm's task 4_3 on vm)"),
    ]
    assert [(task.phase, task.words.partition(" (")[0]) for task in slurm_queue.parse_accounts(ACCOUNTS_24)] == [
        (ENDED, "the task took more memory than it had; choose a profile with more memory"),
        (ENDED, "the time limit passed; give a longer --time"),
        (ENDED, "a job of higher priority took the node"),
        (WAITING, "waits for Slurm"),
    ]


def test_text_of_slurm_cannot_move_the_cursor() -> None:
    [task] = slurm_queue.parse_queue("1|1|PENDING||harness|\x1b[2Jbad\x07\n")
    assert "\x1b" not in task.words and "\x07" not in task.words


def test_nodes_are_counted_in_cores() -> None:
    shown = "main*|2|22057|2:1:1\nbig|64+|512000+|2:16:2\nbig|x|y|z\nodd\n"
    assert [(kind.partition, kind.cpus, kind.memory_mib, kind.default) for kind in slurm_queue.parse_nodes(shown)] == [
        ("main", 2, 22057, True),
        ("big", 32, 512000, False),
    ]


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Puts a command with this shell script on the path, in place of Slurm's."""
    folder = tmp_path / "bin"
    folder.mkdir()
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("cat", "env", "sh"):
        (tools / name).symlink_to(f"/bin/{name}" if Path(f"/bin/{name}").exists() else f"/usr/bin/{name}")
    monkeypatch.setenv("PATH", f"{folder}:{tools}")

    def put(name: str, script: str) -> None:
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)

    return put


@pytest.mark.parametrize(
    ("stderr", "code", "said"),
    [
        # Recorded with 22.05.8.
        (
            "sbatch: error: invalid partition specified: nope\n"
            "sbatch: error: Batch job submission failed: Invalid partition name specified",
            "Refused",
            "sbatch: invalid partition specified: nope; Batch job submission failed: Invalid partition name specified",
        ),
        (
            "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
            "Unreached",
            "sbatch: Batch job submission failed: Socket timed out on send/recv operation",
        ),
        (
            "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
            "Unreached",
            "sbatch: Batch job submission failed: Unable to contact slurm controller (connect failure)",
        ),
        ("", "Refused", "sbatch: exit code 1"),
    ],
)
def test_failure_is_one_line_and_says_whether_it_may_pass(
    commands: Callable[[str, str], None], stderr: str, code: str, said: str
) -> None:
    commands("sbatch", f"printf '%s\\n' '{stderr}' >&2; exit 1")
    with pytest.raises(RemoteError) as error:
        slurm_queue.submit("script")
    assert (error.value.code, str(error.value)) == (code, said)


def test_submission_returns_the_job_and_gets_no_secret(
    commands: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("SQUEUE_PARTITION", "other")
    commands("sbatch", f'cat > {tmp_path}/got; env >> {tmp_path}/got; echo "12;cluster2"')
    assert slurm_queue.submit("#!/bin/sh\n") == "12"
    got = (tmp_path / "got").read_text()
    assert got.startswith("#!/bin/sh\n") and "secret" not in got and "SQUEUE" not in got
    commands("sbatch", "cat > /dev/null; echo Submitted batch job 12")
    with pytest.raises(RemoteError, match="in place of a job's id"):
        slurm_queue.submit("#!/bin/sh\n")


def test_doctor_lists_partitions_or_what_is_missing(
    commands: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in slurm_queue.COMMANDS:
        commands(name, "echo 'main*|2|22057|2:1:1'; echo 'gpu|64|512000|2:16:2'")
    [check] = SlurmBackend.examine()
    assert (check.level, check.fact) == (Level.OK, "job arrays of Slurm; partitions: main, gpu")
    commands("sinfo", "echo 'slurm_load_partitions: Unable to contact slurm controller (connect failure)' >&2; exit 1")
    [check] = SlurmBackend.examine()
    assert check.level is Level.FAIL and check.fact.startswith("sinfo: Unable to contact slurm controller")
    monkeypatch.setenv("PATH", str(tmp_path))
    [check] = SlurmBackend.examine()
    assert (check.level, check.fact) == (Level.FAIL, "cannot find sbatch")
    with pytest.raises(UsageError, match="a login node of a Slurm cluster"):
        slurm_queue.nodes(None)


# ---- scripts


def job(profile: str, number: int = 0) -> PartJob:
    return PartJob(Cell("planted", "bm25", "tiny", "serial", profile), number, 0, f"{profile}-{number}")


BUILD = IndexBuild("index", "planted", "tiny")
FIRST = PlannedPart("001", "", 0.0, 30, (job("small"),), (BUILD,))
SECOND = PlannedPart("002", "", 0.0, 30, (job("large"),), needs=("index",))
THIRD = PlannedPart("003", "", 0.0, 30, (job("small", 1),), needs=("index",))


def suite(build_profile: str | None) -> Any:
    """What a backend asks of a suite."""
    envelopes = {"small": Envelope("small", 1, GIB // 4), "large": Envelope("large", 8, 32 * GIB, 1)}
    return SimpleNamespace(name="s", build_profile=build_profile, envelopes=lambda: envelopes)


NODES = "main*|16|128000|2:8:1\n"


class ScriptedSlurm:
    """Slurm's commands, as far as the backend sees them: what they were given, and a queue to set."""

    def __init__(self) -> None:
        self.scripts: list[str] = []
        self.checked: list[str] = []
        self.queue, self.accounts, self.nodes = "", "", NODES
        self.refusal: str | None = None
        self.cancelled: tuple[str, ...] = ()

    def call(self, *command: str, script: str = "") -> str:
        name = command[0]
        if name == "sinfo":
            return self.nodes
        if name == "sbatch" and "--test-only" in command:
            self.checked.append(script)
            if self.refusal:
                raise RemoteError(self.refusal, "Refused")
            return ""
        if name == "sbatch":
            self.scripts.append(script)
            return f"{len(self.scripts) + 10}\n"
        if name == "sacct":
            if not self.accounts:
                raise RemoteError("Slurm accounting storage is disabled", "Refused")
            return self.accounts
        if name == "scancel":
            self.cancelled = command[1:]
            return ""
        assert name == "squeue"
        return self.queue

    def shows(self, *lines: str) -> None:
        """Set the queue: ``11_1 RUNNING vm`` of array 11, which is the first one of the run, and so on."""
        self.queue = ""
        for line in lines:
            task, state, node, reason = (*line.split(" ", 3), "", "")[:4]
            array, index = task.split("_")
            self.queue += f"{array}|{index}|{state}|{node}|harness-{RUN}-{int(array) - 10:04}|{reason or 'None'}\n"


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> ScriptedSlurm:
    made = ScriptedSlurm()
    monkeypatch.setattr(slurm_queue, "call", made.call)
    monkeypatch.setattr(slurm_queue, "is_here", lambda: True)
    monkeypatch.setenv("HARNESS_HEARTBEAT_S", "1e-9")  # Slurm is asked at each look
    monkeypatch.setattr(claims, "_MISSED", 1e15)
    return made


@pytest.fixture
def work(tmp_path: Path) -> SharedFolder:
    folder = tmp_path / "my shared;folder"
    folder.mkdir(mode=0o750)
    return open_folder(folder)


def backend(work: SharedFolder, **options: object) -> SlurmBackend:
    given = SlurmOptions(**options)  # type: ignore[arg-type]
    return SlurmBackend(work, "process", suite("small"), Path("/cache dir"), given)


def directives(script: str) -> list[str]:
    return [line.removeprefix("#SBATCH ") for line in script.splitlines() if line.startswith("#SBATCH ")]


def test_dry_run_shows_an_array_for_each_shape_with_one_more_cpu_and_memory_for_harness(
    slurm: ScriptedSlurm, work: SharedFolder
) -> None:
    made = backend(work, partition="main", account="a b", time="1:00:00", exclusive=True, sbatch=("--nice=5",))
    lines = made.check([FIRST, SECOND, THIRD])
    assert lines == ["3 job arrays of Slurm with 3 tasks, partition main"]
    small, large, after = made.scripts
    assert {"--cpus-per-task=2", f"--mem={256 + OWN_MIB}M", "--array=1-1", "--nodes=1"} <= set(directives(small))
    assert {"--cpus-per-task=9", f"--mem={32 * 1024 + OWN_MIB}M", "--gres=gpu:1"} <= set(directives(large))
    for script in made.scripts:
        assert {"--hint=nomultithread", "--requeue", "--signal=B:TERM@60", "--exclusive"} <= set(directives(script))
        assert {"--partition=main", "'--account=a b'", "--time=1:00:00", "--nice=5"} <= set(directives(script))
    assert "# Submit it with --dependency=afterok: the tasks of 001" in large and "dependency" not in small
    assert "1) part=s:003 ;;" in after
    assert len(slurm.checked) == 3 and not slurm.scripts


def test_script_hands_the_worker_its_part_with_every_word_whole(
    slurm: ScriptedSlurm, work: SharedFolder, tmp_path: Path
) -> None:
    made = backend(work)
    made.check([FIRST, replace(SECOND, jobs=(job("small"),), needs=())])
    [script] = made.scripts
    shown = script.replace("exec ", "printf '%s\\n' ", 1)
    variables = {"SLURM_ARRAY_TASK_ID": "2", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(["sh"], input=shown, env=variables, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1:] == [
        *("-P", "-m", "harness", "worker", work.where(), "--cache", "/cache dir", "--part", "s:002")
    ]


def test_task_gets_the_profiles_cpus_where_no_node_has_one_more(slurm: ScriptedSlurm, work: SharedFolder) -> None:
    slurm.nodes = "main*|8|64000|2:4:1\n"
    made = backend(work)
    made.check([SECOND])
    assert "--cpus-per-task=8" in directives(made.scripts[0])


def test_memory_that_no_node_has_is_refused_in_one_line(slurm: ScriptedSlurm, work: SharedFolder) -> None:
    slurm.nodes = "main*|16|33791|2:8:1\nmain*|7|512|1:7:1\n"
    with pytest.raises(UsageError) as error:
        backend(work).check([SECOND])
    assert str(error.value) == (
        "no node of the partition main has 8 CPUs and 33792 MiB for large (memory of the profile and 1024 MiB for"
        " harness; the largest has 16 and 33791 MiB); choose another --partition, or leave the profile out by --only"
    )


def test_slurms_refusal_names_the_profiles_before_anything_is_written(slurm: ScriptedSlurm, work: SharedFolder) -> None:
    slurm.refusal = "sbatch: Invalid qos specification"
    with pytest.raises(
        UsageError, match="Invalid qos specification; Slurm refuses the tasks of small, and nothing was sub"
    ):
        backend(work, qos="nothing").check([FIRST])
    assert not list(work.list())


def test_dry_run_writes_the_scripts_where_slurm_is_not(
    work: SharedFolder, commands: Callable[[str, str], None]
) -> None:
    def made(dry_run: bool) -> SlurmBackend:
        return SlurmBackend(work, "process", suite(None), Path("/cache"), SlurmOptions(), dry_run)

    dry = made(dry_run=True)
    assert dry.check([FIRST])[1:] == ["cannot find sbatch here, so Slurm did not check the scripts"]
    assert "--cpus-per-task=2" in directives(dry.scripts[0])
    with pytest.raises(UsageError, match="cannot find sinfo; --on slurm works on a login node"):
        made(dry_run=False).check([FIRST])


@pytest.mark.parametrize(
    "options", [{"partition": "a\n#SBATCH --uid=0"}, {"sbatch": ("--x=\r1",)}, {"sbatch": ("/bin/sh",)}]
)
def test_option_that_would_begin_another_line_is_refused(work: SharedFolder, options: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=r"control character|an option begins with -"):
        backend(work, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--partition=main"], "--partition is for --on slurm; leave it out, or add that"),
        (["--on=slurm", "--launcher=process"], "--on slurm needs a folder on the file system that all nodes share"),
        (["--on=slurm", "--launcher=ec2", "--work=folder"], "--on slurm is not for --launcher ec2; it needs"),
        (["--on=slurm", "--launcher=fake", "--work=s3://a"], "--on slurm is not for --work s3://a; it needs"),
        (["--on=slurm", "--launcher=docker", "--work=folder"], "a Docker engine runs jobs outside of Slurm's limits"),
        (["--on=slurm", "--launcher=fake", "--work=folder", "--spot"], "--spot is for --launcher ec2"),
        (
            ["--on=slurm", "--launcher=fake", "--work=folder", "--retry-noisy=1"],
            "--retry-noisy is not for --work folder",
        ),
    ],
)
def test_options_that_do_not_belong_together_are_refused_in_one_line(options: list[str], message: str) -> None:
    assert_refused(call("run", "quickstart", *options), message)


# ---- states of parts


class Scene:
    """An open run of parts."""

    def __init__(self, slurm: ScriptedSlurm, work: SharedFolder, *parts: PlannedPart) -> None:
        self.slurm, self.work = slurm, work
        self.run = RemoteRun(RUN, "process", "s", "r", "o", parts)
        self.journal = journal.Journal(work, self.run)
        self.journal.begin()
        self.launches = [self.journal.new_launch(Launch(part.name, 3600, 3, 1, 0.0)) for part in parts]
        work.ask_time()
        self.command()

    def command(self) -> None:
        """Begin another command, which knows nothing of the last one."""
        self.backend = backend(self.work)
        self.backend.begin(self.run, ShippedInput("inputs/bundles/b.tar.gz", "0" * 64, 1))

    def look(self, *queue: str) -> dict[str, PartState]:
        """Look once while Slurm shows this."""
        self.slurm.shows(*queue)
        return self.backend.look(self.launches)

    def claim(self, task: str, part: str = "001") -> str:
        """A worker in this task claims a part."""
        worker = f"{task}-vm-1-{part}{len(list(self.work.list('workers/')))}"
        assert claims.claim(self.work, RUN, part, claims.look(self.work, RUN, part), worker)
        return worker

    def end(self, worker: str, detail: str = "", *, cut_off: bool = False) -> None:
        end = WorkerEnd(not detail, detail or None, cut_off)  # type: ignore[arg-type]
        self.work.below(records.worker(worker)).put_new(records.END, dump(end))

    def end_of(self, worker: str) -> WorkerEnd | None:
        return fetch(WorkerEnd, self.work.below(records.worker(worker)), records.END)


@pytest.fixture
def scene(slurm: ScriptedSlurm, work: SharedFolder) -> Scene:
    return Scene(slurm, work, FIRST)


def test_all_parts_are_submitted_at_once_and_wait_for_the_part_that_builds(
    slurm: ScriptedSlurm, work: SharedFolder
) -> None:
    states = Scene(slurm, work, FIRST, SECOND, THIRD).look()
    assert [state.words for state in states.values()] == ["waits for Slurm"] * 3
    first, *others = slurm.scripts
    assert not any("dependency" in line for line in directives(first))
    for script in others:
        assert {"--dependency=afterok:11_1", "--kill-on-invalid-dep=yes"} <= set(directives(script))


def test_task_is_shown_as_slurm_shows_it(scene: Scene) -> None:
    scene.look()
    assert scene.look("11_1 PENDING  Priority")["001"].words == "waits for Slurm (Priority)"
    assert scene.look("11_1 RUNNING n07")["001"].words == "running on n07"
    scene.claim("11_1")
    state = scene.look("11_1 RUNNING n07")["001"]
    assert (state.phase, state.place) == (RUNNING, "n07")
    assert len(scene.slurm.scripts) == 1


@pytest.mark.parametrize("state", ["NODE_FAIL", "PREEMPTED", "TIMEOUT", "OUT_OF_MEMORY"])
def test_dead_workers_part_is_submitted_again_at_once(scene: Scene, state: str) -> None:
    scene.look()
    worker = scene.claim("11_1")
    assert scene.look("11_1 RUNNING vm")["001"].phase == RUNNING
    assert scene.look(f"11_1 {state} vm")["001"].words == "waits for Slurm"
    end = scene.end_of(worker)
    assert end is not None and end.cut_off and "(Slurm's task 11_1 on vm)" in str(end.detail)
    assert len(scene.slurm.scripts) == 2


def test_part_is_given_up_after_as_many_workers_as_a_part_gets(scene: Scene) -> None:
    scene.look()
    for number in range(claims.ATTEMPTS):
        scene.claim(f"{11 + number}_1")
        state = scene.look(f"{11 + number}_1 NODE_FAIL vm")["001"]
    assert (state.phase, len(scene.slurm.scripts)) == (ENDED, claims.ATTEMPTS)
    assert "the node failed" in state.reason


def test_part_whose_time_is_too_short_says_so_in_the_end(scene: Scene) -> None:
    scene.look()
    for number in range(claims.ATTEMPTS):
        scene.end(scene.claim(f"{11 + number}_1"), STOPPED, cut_off=True)
        state = scene.look(f"{11 + number}_1 FAILED vm")["001"]
    assert (state.phase, len(scene.slurm.scripts)) == (ENDED, claims.ATTEMPTS)
    assert state.reason == "its time limit was near, or Slurm took the node; give a longer --time"


def test_tasks_that_end_before_their_worker_begins_are_submitted_three_times(scene: Scene) -> None:
    scene.look()
    for number in range(claims.ATTEMPTS):
        state = scene.look(f"{11 + number}_1 NODE_FAIL vm")["001"]
    assert (state.phase, len(scene.slurm.scripts)) == (ENDED, claims.ATTEMPTS)
    assert state.reason == "submitted 3 times; the node failed (Slurm's task 13_1 on vm)"


def test_requeued_tasks_worker_is_dead_and_the_part_waits_for_the_same_task(scene: Scene) -> None:
    scene.look()
    worker = scene.claim("11_1")
    state = scene.look("11_1 PENDING  BeginTime")["001"]
    assert (state.phase, state.words) == (WAITING, "waits for Slurm (BeginTime)")
    end = scene.end_of(worker)
    assert end is not None and end.cut_off and len(scene.slurm.scripts) == 1


def test_workers_own_end_counts_and_a_worker_of_no_task_is_left_alone(scene: Scene) -> None:
    scene.look()
    worker = scene.claim("11_1")
    scene.end(worker)
    assert scene.look("11_1 CANCELLED vm")["001"] == scene.look("11_1 OUT_OF_MEMORY vm")["001"]
    assert scene.backend.look(scene.launches)["001"].phase == ENDED and scene.end_of(worker) == WorkerEnd(True)


def test_a_workers_own_end_is_never_replaced(scene: Scene) -> None:
    worker = scene.claim("11_1")
    scene.end(worker)
    claims.bury(scene.work, worker, "Slurm says that it is dead")
    assert scene.end_of(worker) == WorkerEnd(True)


def test_worker_that_a_person_started_goes_on_while_the_task_ended(scene: Scene) -> None:
    scene.look()
    worker = scene.claim("login")
    assert scene.look("11_1 NODE_FAIL vm")["001"].phase == RUNNING
    assert scene.end_of(worker) is None and len(scene.slurm.scripts) == 1


def test_cancelled_task_ends_the_part_for_this_command_and_the_next_submits_it(scene: Scene) -> None:
    scene.look()
    worker = scene.claim("11_1")
    scene.end(worker, "a signal ended the worker", cut_off=True)
    state = scene.look("11_1 CANCELLED vm")["001"]
    assert (state.phase, state.reason) == (ENDED, "the task was cancelled (Slurm's task 11_1 on vm)")
    scene.command()
    assert scene.look("11_1 CANCELLED vm")["001"].phase == WAITING and len(scene.slurm.scripts) == 2


def test_tasks_that_were_cancelled_before_they_began_end_their_parts(scene: Scene) -> None:
    """Slurm shows them as one line without a number: ``scancel --user=me``."""
    scene.look()
    state = scene.look("11_N/A CANCELLED  Resources")["001"]
    assert (state.phase, state.reason) == (ENDED, "the task was cancelled (Slurm's task 11_1)")
    assert len(scene.slurm.scripts) == 1, "nothing is submitted again"


def test_task_that_waited_in_vain_is_submitted_again_without_its_builder(
    slurm: ScriptedSlurm, work: SharedFolder
) -> None:
    scene = Scene(slurm, work, FIRST, THIRD)
    scene.look()
    worker = scene.claim("11_1")
    scene.end(worker, "exit code 1")
    states = scene.look("11_1 FAILED vm", "12_1 CANCELLED  DependencyNeverSatisfied")
    assert states["001"].phase == ENDED and states["003"].phase == WAITING
    assert len(slurm.scripts) == 3 and "dependency" not in slurm.scripts[2]


def test_task_that_fails_before_its_worker_shows_what_it_printed(scene: Scene) -> None:
    scene.look()
    Path(scene.work.where(), f"harness-{RUN}-0001-11_1.out").write_text("a\nexec: python: not found\x1b[2J\n")
    state = scene.look("11_1 FAILED vm")["001"]
    assert state.phase == ENDED and len(scene.slurm.scripts) == 1
    assert "the task failed (Slurm's task 11_1 on vm): exec: python: not found" in state.reason
    assert "\x1b" not in state.reason


def test_later_command_finds_tasks_by_name_where_the_first_died_before_their_id(scene: Scene) -> None:
    scene.look()
    record = f"{records.run(RUN)}/slurm/0001.json"
    content = scene.work.get(record, 1 << 20) or b""
    scene.work.put(record, content.replace(b'"11"', b'""'))
    scene.command()
    assert scene.look("11_1 RUNNING vm")["001"].words == "running on vm" and len(scene.slurm.scripts) == 1
    assert "`scancel 11` ends them" in scene.backend.going_on(scene.launches)
    scene.backend.cancel()
    assert scene.slurm.cancelled == ("11",)


def test_submission_whose_answer_is_lost_is_not_repeated(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_HEARTBEAT_S", "1e9")  # Slurm is asked when there is a reason
    call = scene.slurm.call

    def lose(*command: str, script: str = "") -> str:
        answer = call(*command, script=script)
        if command[0] == "sbatch":
            raise RemoteError("sbatch: Socket timed out on send/recv operation", "Unreached")
        return answer

    monkeypatch.setattr(slurm_queue, "call", lose)
    with pytest.raises(RemoteError, match="timed out"):
        scene.look()
    monkeypatch.setattr(slurm_queue, "call", call)
    assert scene.look("11_1 PENDING  Priority")["001"].words == "waits for Slurm (Priority)"
    assert len(scene.slurm.scripts) == 1


def test_accounting_knows_tasks_that_the_queue_has_forgotten(scene: Scene) -> None:
    scene.look()
    scene.claim("11_1")
    assert scene.look()["001"].phase == RUNNING, "without accounting heartbeats decide"
    scene.slurm.accounts = f"11_1|NODE_FAIL|vm|harness-{RUN}-0001\n"
    assert scene.look()["001"].phase == WAITING and len(scene.slurm.scripts) == 2


def test_finished_run_leaves_nothing_that_its_tasks_printed(scene: Scene) -> None:
    scene.look()
    printed = Path(scene.work.where(), f"harness-{RUN}-0001-11_1.out")
    printed.write_text("x")
    other = Path(scene.work.where(), f"harness-{RUN}x-0001-11_1.out")
    other.write_text("of another run")
    scene.journal.close()
    scene.backend.tidy()
    assert not printed.exists() and other.exists() and not list(scene.work.list("runs/"))


# ---- the worker of a task


def test_worker_of_one_part_waits_for_it_and_knows_when_it_is_done(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[str, tuple[str, ...]]] = []

    def do(_work: SharedFolder, _run: RemoteRun, part: str, found: PartState, _cache: Path) -> bool:
        done.append((part, found.workers))
        return True

    monkeypatch.setattr(folder_worker, "_do", do)
    serve = folder_worker.serve_part
    assert not serve(scene.work, tmp_path, RUN, "009", idle_s=0.02, poll_s=0.01), "no command has begun it"
    assert serve(scene.work, tmp_path, RUN, "001", idle_s=1) and serve(scene.work, tmp_path, "s", "001", idle_s=1)
    assert done == [("001", ())] * 2
    dead = scene.claim("11_1")
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "11")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "1")
    assert serve(scene.work, tmp_path, RUN, "001", idle_s=1), "Slurm began the task again, so its worker is dead"
    assert done[-1] == ("001", (dead,))
    last = scene.claim("12_1")
    scene.end(last)
    assert serve(scene.work, tmp_path, RUN, "001", idle_s=1) and len(done) == 3, "another worker has done it"
    scene.journal.close()
    assert serve(scene.work, tmp_path, RUN, "001", idle_s=1), "the run is over"
    assert not serve(scene.work, tmp_path, "s", "001", idle_s=0.02, poll_s=0.01)
