"""What to do next, from all that is known.  Pure: no clock, no AWS.

Times are AWS' own, seconds since 1970: this machine's clock is never asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from harness.ec2.money import BEYOND_LIMIT_S, Ask, limits
from harness.ec2.records import Launch
from harness.remote.records import Beat, End

MOST_ATTEMPTS = 3
# How long to wait before terminating once more what does not go.
_AGAIN_S = 60.0
LIVE = frozenset({"pending", "running", "shutting-down", "stopping", "stopped"})


@dataclass(frozen=True)
class Patience:
    """How long to wait for a sign of life (seconds).

    ``first_beat_s``: after the launch, boot and engine included.  ``beat_s``: after the last one.  ``shown_s``: until
    EC2 shows an instance that it said was launched, and knows what IAM has made.  ``hold_s``: before a type is asked
    for again that no zone has; ``short_s``: until that is given up.  ``linger_s``: until what was told to end is given
    up, should it not go.
    """

    first_beat_s: float = 1200.0
    beat_s: float = 300.0
    shown_s: float = 300.0
    hold_s: float = 60.0
    short_s: float = 7200.0
    linger_s: float = 900.0


@dataclass(frozen=True)
class Box:
    """An instance as EC2 shows it; ``reason`` is why it is in its state, in EC2's words."""

    instance_id: str
    part: str
    state: str
    launched: float
    zone: str | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Part:
    """A group's part for its present box: what it is to do, and what is known of that box.

    ``asked``: EC2 has told this process that the instance is launched; ``answered``: when it was last asked, or said
    so; ``ended``: it has said that it was there, and has ended.  ``told``: when it was last told to end,
    ``told_first``: when first, or when it was first seen to end by itself.
    ``settled``: it was seen to be gone before.
    """

    name: str
    attempt: int
    instance_type: str
    ask: Ask
    wants: frozenset[str]
    builds: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset()
    launch: Launch | None = None
    asked: bool = False
    answered: float | None = None
    ended: bool = False
    box: Box | None = None
    beat: Beat | None = None
    beat_at: float | None = None
    end: End | None = None
    told: float | None = None
    told_first: float | None = None
    settled: bool = False


@dataclass(frozen=True)
class World:
    """All that is known.  ``parts`` are of the groups that are not finished; ``arrived`` are keys of jobs in S3 that
    are not ``home`` yet; ``indexes`` those that are there; ``committed_usd`` what was spent or is promised;
    ``held`` says until when no instance of a type is asked for, ``short`` since when no zone has had one; ``stopping``
    that all is to end.
    """

    now: float
    parts: tuple[Part, ...]
    home: frozenset[str] = frozenset()
    arrived: frozenset[str] = frozenset()
    indexes: frozenset[str] = frozenset()
    most: int = 1
    cap_usd: float | None = None
    committed_usd: float = 0.0
    held: Mapping[str, float] = field(default_factory=dict)
    short: Mapping[str, float] = field(default_factory=dict)
    stopping: bool = False
    patience: Patience = Patience()


@dataclass(frozen=True)
class Bring:
    """Take these jobs into the store."""

    keys: tuple[str, ...]


@dataclass(frozen=True)
class Start:
    """Launch an instance; its box is to power off after so many seconds."""

    part: str
    limit_s: float


@dataclass(frozen=True)
class Terminate:
    """End an instance, and say why unless it has ended well."""

    part: str
    instance_id: str
    why: str | None


@dataclass(frozen=True)
class Finish:
    """The group is done; its instance is gone."""

    part: str


@dataclass(frozen=True)
class Retry:
    """The instance is gone and left something undone: the rest is for another."""

    part: str
    why: str


@dataclass(frozen=True)
class GiveUp:
    """Nothing more is tried for the group."""

    part: str
    why: str


@dataclass(frozen=True)
class Leave:
    """The run stops: the group stays as it is, for the next that goes on with it."""

    part: str


Action = Bring | Start | Terminate | Finish | Retry | GiveUp | Leave


def decide(world: World) -> list[Action]:
    """What to do now; nothing at all where everything waits for others."""
    actions: list[Action] = []
    if world.arrived:
        actions.append(Bring(tuple(sorted(world.arrived))))
    for part in world.parts:
        actions += _of_part(part, world)
    if not world.stopping:
        actions += _launches(world)
    return actions


def gone(part: Part, world: World) -> bool:
    """Whether a part's instance was there, and is not any more."""
    if part.launch is None:
        return False
    if part.box is not None:
        return part.box.state not in LIVE
    if part.settled or part.ended:
        return True
    since = world.now - part.launch.at
    # Asking may take long, and whoever goes on with a run asks again: EC2 shows it only some time after its answer.
    latest = max(part.launch.at, part.answered or 0.0, part.beat_at or 0.0)
    over = since > part.launch.limit_s + BEYOND_LIMIT_S
    if world.now - latest <= world.patience.shown_s and (part.asked or not over):
        return False
    # Signs of life of one that EC2 has forgotten; or none, and it would have ended by itself.
    existed = part.asked or part.beat is not None or part.end is not None
    return existed or over or world.stopping


def _of_part(part: Part, world: World) -> Iterator[Action]:
    if part.launch is None:
        if world.stopping:
            yield Leave(part.name)
        return
    if gone(part, world):
        yield from _after(part, world)
    elif part.box is not None and _lingers(part, world):
        yield from _after(replace(part, attempt=MOST_ATTEMPTS), world)
    elif part.box is not None:
        yield from _living(part, part.box, world)
    elif not part.asked and not world.stopping and part.beat is None and part.end is None:
        # Whoever wrote the launch down may have died before EC2 was asked; asking twice makes one instance.
        yield Start(part.name, part.launch.limit_s)


def _lingers(part: Part, world: World) -> bool:
    """Whether it was told to end long ago and is still there; nobody takes its place, and the end is loud."""
    return part.told_first is not None and world.now - part.told_first > world.patience.linger_s


def _living(part: Part, box: Box, world: World) -> Iterator[Action]:
    done = part.end is not None
    why = "the run is stopped" if world.stopping else _wrong(part, box, world)
    ends = done or why is not None
    waits = part.told is not None and world.now - part.told < _AGAIN_S
    if ends and not waits and not (part.told is None and box.state == "shutting-down"):
        yield Terminate(part.name, box.instance_id, None if done else why)


def _wrong(part: Part, box: Box, world: World) -> str | None:
    """Why an instance must go that has not said that it is done."""
    if part.end is not None or part.launch is None:
        return None
    if box.state in ("stopping", "stopped"):
        return f"it is {box.state}"
    if world.now - box.launched > part.launch.limit_s + BEYOND_LIMIT_S:
        return f"its time limit of {part.launch.limit_s / 3600:.1f} h has passed and it is still there"
    if part.beat is not None and part.beat.notice:
        return f"EC2 takes it away: {part.beat.notice}"
    if part.beat_at is not None and part.beat_at >= box.launched - world.patience.shown_s:
        # Until harness is there, nothing beats.
        installs = part.beat is not None and part.beat.phase == "installing"
        silent = world.now - part.beat_at
        most = world.patience.first_beat_s if installs else world.patience.beat_s
    else:
        silent, most = world.now - box.launched, world.patience.first_beat_s
    return f"no sign of life for {silent / 60:.0f} min" if silent > most else None


def _after(part: Part, world: World) -> Iterator[Action]:
    """What becomes of a group whose instance is gone.  S3 was looked at after EC2: nothing arrives any more."""
    if part.wants & world.arrived:
        return  # first home with these
    missing = part.wants - world.home
    unbuilt = part.builds - world.indexes
    # A build that failed would fail again: whoever needs the index will try, and store what comes of it.
    if not missing and (not unbuilt or part.end is not None):
        yield Finish(part.name)
        return
    if world.stopping:
        yield Leave(part.name)
        return
    if part.end is None:
        why = "its instance went away" + (f" ({part.box.reason})" if part.box and part.box.reason else "")
    elif part.end.ok:
        why = f"its box left out {len(missing)} jobs"
    else:
        why = part.end.detail or "its box failed"
    if part.attempt < MOST_ATTEMPTS:
        yield Retry(part.name, why)
    else:
        yield GiveUp(part.name, f"{part.attempt} instances did not do it; the last: {why}")


def _launches(world: World) -> Iterator[Action]:
    living = [part for part in world.parts if part.launch is not None and not gone(part, world)]
    short_s = world.patience.short_s
    scarce = {name for name, since in world.short.items() if world.now - since > short_s}
    scarce -= {part.instance_type for part in living}  # one that lives leaves its machine to another
    waiting = []
    for part in world.parts:
        if part.launch is None and part.instance_type in scarce:
            yield GiveUp(part.name, f"no zone has had a {part.instance_type} for {short_s / 3600:.1f} h")
        elif part.launch is None:
            waiting.append(part)
    in_the_making = frozenset().union(*(part.builds for part in world.parts)) - world.indexes
    ready = [part for part in waiting if not (part.needs & in_the_making)]
    asked = [part for part in ready if world.held.get(part.instance_type, 0.0) <= world.now]
    # What others wait for, then what takes longest.
    asked.sort(key=lambda part: (not part.builds, -part.ask.need_s, part.name))
    asked = asked[: max(0, world.most - len(living))]
    available = None if world.cap_usd is None else world.cap_usd - world.committed_usd
    granted = limits([part.ask for part in asked], available)
    for part, limit_s in zip(asked, granted, strict=True):
        if limit_s is not None:
            yield Start(part.name, limit_s)
    if asked and not living and granted[0] is None:
        # Nothing is promised that could come back.
        for part in asked:
            yield GiveUp(
                part.name, f"what is left of --max-usd, US$ {max(available or 0, 0):.2f}, does not reach for it"
            )
