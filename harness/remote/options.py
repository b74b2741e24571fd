"""Options of runs on other machines, in a module that imports nothing: each command line that runs has them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RemoteOptions:
    """Options of a run on other machines.  ``most``: machines at once; ``cap_usd``: the most that it may cost."""

    cap_usd: float | None = None
    most: int = 8
    dry_run: bool = False
    wide: bool = False


@dataclass(frozen=True)
class SlurmOptions:
    """Options of ``--on slurm``, as sbatch takes them; ``sbatch``: further ones, each with its value."""

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    exclusive: bool = False
    time: str | None = None
    sbatch: tuple[str, ...] = ()
