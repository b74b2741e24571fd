"""What a run on EC2 would be, shown to whoever is to agree to it.  Launches, builds and uploads nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from harness.aws.connections import Connections
from harness.aws.objects import Objects
from harness.ec2 import drafting, preflight, quotas, quote, tags
from harness.ec2.drafting import Draft, Drafter
from harness.ec2.machines import Machine
from harness.ec2.planning import Ready
from harness.ec2.preflight import Ground
from harness.errors import AwsError, UsageError
from harness.progress import Screen

# Estimates that differ by less are the same.
_CENT = 0.01


@dataclass(frozen=True)
class Offer:
    """What a run would be, and what it stands on; ``owner`` is us.

    ``most``: instances at once, as the quota allows; ``cap_usd``: what all may cost; ``anew``: it is another than was
    shown before.
    """

    draft: Draft
    ground: Ground
    owner: str
    most: int
    cap_usd: float | None = None
    anew: bool = False


def offered(
    drafter: Drafter,
    connections: Connections,
    work: Objects,
    screen: Screen,
    make: Callable[[], Ready] | None = None,
) -> Offer:
    """Show what it would be.

    Args:
        drafter: of the request.
        connections: to AWS.
        work: the work place.
        screen: where to.
        make: makes the images, which a run that is gone on with must have to be known again; ``None``: a dry run.

    Raises:
        UsageError: it costs more than the cap.
    """
    request = drafter.request
    owner, missing = tags.owner(connections), []
    try:
        found = drafting.open_run(work, request, owner)
    except AwsError as error:
        if error.code != "NoSuchBucket":
            raise
        found, missing = None, [f"the bucket {request.work.bucket}"]
    draft = drafter.draft(make() if found and make else drafter.found(), found)
    return _shown(drafter, connections, screen, draft, owner, tuple(missing))


def renewed(drafter: Drafter, connections: Connections, screen: Screen, before: Offer, draft: Draft) -> Offer:
    """The offer for what it has turned out to be, now that all images are made: shown again where it asks for more.

    Raises:
        UsageError: it costs more than the cap, or cannot be done so.
    """
    types = {group.instance_type for group in draft.groups}
    after, asked = _quote(drafter, draft, before.ground, before), _quote(drafter, before.draft, before.ground, before)
    grown = max(after.expected_usd - asked.expected_usd, after.worst_usd - asked.worst_usd) > _CENT / 2
    if not grown and types <= before.ground.zones.keys():
        return replace(before, draft=draft)
    screen.say("now that the images are made, it is more:")
    return replace(_shown(drafter, connections, screen, draft, before.owner, ()), anew=True)


def _shown(
    drafter: Drafter, connections: Connections, screen: Screen, draft: Draft, owner: str, missing: tuple[str, ...]
) -> Offer:
    request, found = drafter.request, draft.run
    wanted = [(_machine(drafter, group.instance_type), group.gpus) for group in draft.groups]
    if not wanted:  # the region is still asked whether all is there
        wanted = [(machine, 0) for machine in drafter.machines.values()]
    ground = preflight.look(
        connections,
        found.region if found else drafter.market.region,
        wanted,
        work=request.work,
        system=request.suite.ec2.ami,
        subnet=request.subnet,
        spot=request.spot,
    )
    ground = replace(ground, missing=(*missing, *ground.missing))
    offer = Offer(draft, ground, owner, request.most, drafting.cap_usd(request, found))
    if draft.groups:
        machines = [drafter.market.known[group.instance_type] for group in draft.groups]
        offer = replace(offer, most=quotas.room(ground.quotas, machines, request.most))
        asked = _quote(drafter, draft, ground, offer)
        quote.show(asked, screen.console)
        _check_cap(asked)
    return offer


def _quote(drafter: Drafter, draft: Draft, ground: Ground, offer: Offer) -> quote.Quote:
    request, known = drafter.request, drafter.market.known
    said = [*quote.remarks(drafter.machines)]
    if draft.run:
        said.append(f"goes on with the open run {draft.run.run_id}")
    if offer.most < request.most:
        said.append(f"not {request.most} at once, which the quota has no room for")
    if ground.missing:
        where = f" --subnet {request.subnet}" if request.subnet else ""
        said.append(f"still to be made, by `harness ec2 up {request.work}{where}`: {', '.join(ground.missing)}")
    return quote.Quote(
        groups=draft.groups,
        region=ground.region,
        prices=str(drafter.market.snapshot),
        amis=tuple(f"{ami.image_id} ({ami.name})" for ami in ground.amis.values()),
        zones=ground.zones,
        quotas={name: found.words(known[name]) if found else None for name, found in ground.quotas.items()},
        most=offer.most,
        cap_usd=offer.cap_usd,
        spot=request.spot,
        remarks=tuple(said),
    )


def _check_cap(offer: quote.Quote) -> None:
    if offer.cap_usd is not None and offer.expected_usd > offer.cap_usd:
        raise UsageError(
            f"it is expected to cost US$ {offer.expected_usd:.2f}, more than --max-usd {offer.cap_usd:.2f};"
            " measure less (--only), choose cheaper types, or raise it; nothing was launched"
        )


def _machine(drafter: Drafter, instance_type: str) -> Machine:
    known = drafter.market.known[instance_type]
    return Machine(known, drafter.market.snapshot.price_of(instance_type) or 0.0)
