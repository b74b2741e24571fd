"""Add prices and costs to measured rows.  Pure and fast: stored files are not read again.

Which machine a row is priced on:

- a row published for an instance type, or measured on a known type, is priced on that type; if the type is no longer
rented, on the cheapest type with at least the same resources, and the row says that its latency was not measured again;
- any other row, and every row with the choice ``cheapest``, is priced on the cheapest type that provides its hardware
profile and the known need of GPU memory, preferably of the current generation and of the measured architecture. A row
without GPUs is then never priced on a type with GPUs or other accelerators.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.analysis import row_carbon
from harness.analysis.table import Cost, Machine, Price, Row, Table, TokenPrice
from harness.driver.records import Envelope, Outcome
from harness.errors import counted, did_you_mean
from harness.estimate import Estimate
from harness.pricing import carbon, cost, instances, offers, prices, serverless, token_prices
from harness.pricing.carbon import CarbonRates
from harness.pricing.instances import DEFAULT_CHOICE, Instance, TypeChoice
from harness.pricing.offers import Offer, Offers
from harness.pricing.prices import PriceSelection, Snapshot, StoragePrice
from harness.pricing.serverless import Load, ServerlessPrices, ServerlessQuote
from harness.pricing.token_prices import TokenSnapshot
from harness.untrusted import ForeignText

# The type of a price that the user gave.
TOLD_TYPE = "machine at the given price"
_UNNAMED = (
    "harness does not know the machine of a service that ran already; name it with `harness attach --instance TYPE`, or"
    " its price with --usd-per-hour"
)
_PRICES_PAGE = "docs/reference/prices.md"
_ARCHITECTURES = {"aarch64": "arm64", "amd64": "x86_64"}
# CPUs, memory, GPUs and the memory of each GPU, if known.
HardwareNeed = tuple[int, int, int, int | None]
# A row's price and a note on it.
MachineChoice = tuple[Price | None, str | None]


@dataclass(frozen=True)
class Tariff:
    """Everything that prices rows: the prices of a date, facts about all known types, and the price of storage.

    ``storage`` is ``None`` if that place and date have no price of storage; ``root`` is the folder of the facts, if not
    the shipped one; ``choice`` holds the preferred types; ``tokens`` are the prices of language models' tokens
    (``None``: unknown), ``serverless`` the prices of serverless offers (``None``: none is that old), ``carbon`` the
    factors of carbon.
    """

    snapshot: Snapshot
    known: Mapping[str, Instance] = field(repr=False)
    storage: StoragePrice | None = None
    root: Path | None = None
    choice: TypeChoice = DEFAULT_CHOICE
    tokens: TokenSnapshot | None = None
    carbon: CarbonRates | None = None
    serverless: ServerlessPrices | None = None
    # Earlier answers: ten thousand rows ask the same few questions.
    _offers: dict[HardwareNeed, Offers] = field(default_factory=dict, repr=False, compare=False)
    _cheapest: dict[tuple[HardwareNeed, str | None], Price | None] = field(
        default_factory=dict, repr=False, compare=False
    )
    _by_type: dict[str, MachineChoice] = field(default_factory=dict, repr=False, compare=False)

    def cheapest(
        self, envelope: Envelope, gpu_memory_bytes: int | None = None, measured: str | None = None
    ) -> Price | None:
        """Return the cheapest preferred type that provides an envelope, or ``None``.

        Args:
            envelope: required hardware.
            gpu_memory_bytes: required memory of each GPU, if known.
            measured: architecture of the machine that measured, if known.
        """
        need = (envelope.cpus, envelope.memory_bytes, envelope.gpus, gpu_memory_bytes)
        if (need, measured) not in self._cheapest:
            if need not in self._offers:
                self._offers[need] = offers.find_offers(envelope, self.snapshot, gpu_memory_bytes=gpu_memory_bytes)
            offer = self._offers[need].chosen(self.choice, measured)
            self._cheapest[need, measured] = None if offer is None else _price(offer)
        return self._cheapest[need, measured]

    def on(self, instance_type: str) -> MachineChoice:
        """Return the type or its successor, or the reason why both are missing."""
        if instance_type not in self._by_type:
            self._by_type[instance_type] = _on(instance_type, self)
        return self._by_type[instance_type]

    def foreign(self, instance_type: str) -> bool:
        """Return whether the type belongs to another provider."""
        return instance_type not in self.known and instance_type in _of_others(self.snapshot.provider, self.root)


def tariff(
    snapshot: Snapshot,
    root: Path | None = None,
    choice: TypeChoice = DEFAULT_CHOICE,
    tokens: TokenSnapshot | None = None,
    rates: CarbonRates | None = None,
    serverless: ServerlessPrices | None = None,
) -> Tariff:
    """Return the tariff for a snapshot of prices.

    Args:
        snapshot: the prices.
        root: another ``instance_profiles/``.
        choice: preferred types.
        tokens: prices of tokens.
        rates: factors of carbon; by default the newest, at the grid of the snapshot's region.
        serverless: prices of serverless offers.

    Raises:
        FileError: a file of facts or prices is wrong.
    """
    place = (snapshot.provider, snapshot.region, snapshot.as_of)
    known = instances.read_instances(snapshot.provider, root)
    rates = rates or carbon.rates(f"{snapshot.provider}/{snapshot.region}", root=root)
    return Tariff(snapshot, known, prices.storage_price(*place, root), root, choice, tokens, rates, serverless)


def selected_tariff(selection: PriceSelection) -> Tariff:
    """Return the tariff for a choice of prices.

    Raises:
        UsageError: prices of this region, term or date do not exist.
        FileError: a file of facts or prices is wrong.
    """
    snapshot = selection.snapshot()
    return tariff(
        snapshot,
        choice=selection.choice,
        tokens=token_prices.FILES.newest(selection.token_prices),
        rates=carbon.rates(f"{snapshot.provider}/{snapshot.region}", selection.grid, selection.carbon_factors),
        serverless=serverless.FILES.newest(selection.as_of),
    )


def formulas() -> dict[str, str]:
    """Return the formula of each cost, by its name."""
    others = {"tokens": token_prices.FORMULA, "build": cost.BUILD_FORMULA, "storage": cost.STORAGE_FORMULA}
    others["carbon"] = carbon.FORMULA
    return {model.name: model.formula for model in cost.MODELS} | others


def price_row(row: Row, tariff: Tariff) -> Row:
    """Return a measured row with prices and costs."""
    price, note = choose_machine(row, tariff)
    if row.outcome is not Outcome.OK:
        return replace(row, price=price, price_note=note)
    build_price, build_cost = _build(row, tariff)
    token_price, token_cost = tokens(row, tariff.tokens)
    metered_cost, quotes = metered(row, tariff)
    best = serverless.cheapest(quotes)
    return replace(
        row,
        price=price,
        price_note=note,
        cost=Cost(
            sequential=sequential(row, price, note),
            saturated=saturated(row, price, note),
            metered=metered_cost,
            metered_quote=best,
            serverless=quotes,
            tokens=token_cost,
            token_price=token_price,
            build=build_cost,
            build_price=build_price,
            storage_per_month=_storage(row, tariff),
        ),
        carbon=row_carbon.of_row(row, tariff.carbon, measured_architecture(row)),
    )


def on_machine(row: Row, price: Price | None, note: str | None) -> Row:
    """Return a measured row with a machine and what queries cost on it."""
    queries = replace(row.cost, sequential=sequential(row, price, note), saturated=saturated(row, price, note))
    return replace(row, price=price, price_note=note, cost=queries)


def price(table: Table, tariff: Tariff) -> Table:
    """Return a table with its rows priced and its notes."""
    from harness.analysis import notes  # slow to import, and not needed to price rows alone

    snapshot = tariff.snapshot
    rows = tuple(price_row(row, tariff) for row in table.rows)
    priced = replace(
        table,
        rows=rows,
        price_provider=snapshot.provider,
        price_region=snapshot.region,
        price_date=str(snapshot.as_of),
        price_source=snapshot.source,
        price_term=snapshot.term,
        price_architecture=tariff.choice.architecture,
        price_generation=tariff.choice.generation,
        price_machine="cheapest" if tariff.choice.cheapest else "measured",
        price_tokens_date=next((row.cost.token_price.date for row in rows if row.cost.token_price is not None), ""),
        cost_formula=cost.SEQUENTIAL.formula,
        cost_formulas=formulas(),
    )
    told = notes.of_table(priced, snapshot, tariff.choice, tariff.storage)
    return replace(priced, notes=(*table.unreadable, *told))


def choose_machine(row: Row, tariff: Tariff) -> MachineChoice:
    """Return the machine that prices a row by the rules above, or the reason why it is missing."""
    if row.isolation.attached:
        return _named_machine(row, tariff)
    if not row.cpus:
        return None, "published without hardware, so nothing can be priced"
    own = own_type(row, tariff)
    return cheapest_machine(row, tariff) if own is None else tariff.on(own)


def _named_machine(row: Row, tariff: Tariff) -> MachineChoice:
    """Return the machine that the user names for a service that ran already."""
    told, warning = row.told, "as its user told harness, which verified nothing of it"
    if told is not None and told.instance is not None:
        price, note = tariff.on(told.instance)
        reason = f"{note}; " if note else ""
        return price, f"{reason}the service runs on {told.instance}, {warning}" if price else note
    if told is not None and told.usd_per_hour is not None:
        note = f"the machines of the service cost US$ {told.usd_per_hour:g} an hour, {warning}"
        return Price(TOLD_TYPE, "", 0, 0, "", "", told.usd_per_hour, str(tariff.snapshot.as_of)), note
    return None, _UNNAMED


def own_type(row: Row, tariff: Tariff) -> str | None:
    """Return the type that a row belongs to: the paper's, else the known type that measured it."""
    if row.isolation.attached:
        return None if row.told is None else row.told.instance
    if row.published_type is not None:
        return None if tariff.foreign(row.published_type) else row.published_type
    return None if tariff.choice.cheapest else _known_type(row.machine, tariff)


def _known_type(machine: Machine | None, tariff: Tariff) -> str | None:
    name = None if machine is None or machine.instance_type is None else str(machine.instance_type)
    return name if name in tariff.known else None


def is_own_machine(row: Row, price: Price) -> bool:
    """Return whether a row was measured on the type that prices it."""
    if row.isolation.attached:
        return price.substitutes is None
    return price.instance_type in (row.published_type, row.machine and str(row.machine.instance_type))


def cheapest_machine(row: Row, tariff: Tariff) -> MachineChoice:
    """Return the cheapest machine with a row's hardware profile and its known need of GPU memory."""
    if row.isolation.attached:
        return _named_machine(row, tariff)  # no type can be said to provide what is not known
    envelope = Envelope(row.profile, row.cpus, row.memory_bytes, row.gpus)
    need = gpu_memory_bytes(row)
    here = measured_architecture(row)
    price = tariff.cheapest(envelope, need, here)
    if price is None:
        return None, f"{_no_type(envelope, tariff, need)}; price with another snapshot"
    if row.published_type not in (None, price.instance_type):
        return price, "another type than the paper's; latency not re-measured"
    there = price.architecture
    measured = row.machine.instance_type if row.machine else None
    instance = tariff.known[price.instance_type]
    gpu = _other_gpu(row, price)
    earlier = tariff.choice.generation == "current" and instance.previous_generation
    note = ""
    if measured not in (None, price.instance_type):
        note = f", the cheapest type that provides the profile; latency was measured on {measured} ({here})"
    elif here not in (there, None):
        note = f"; latency was measured on {here}"
    elif gpu:
        note = f", whose GPU is a {price.gpu_model}; latency was measured on {gpu}"
    if note:
        note += ", and the cost takes it to be the same there"
    if earlier:
        note += f"; no {there} type of the current generation provides the profile"
    return price, f"priced on {price.instance_type} ({there}){note}" if note else None


def basis(row: Row) -> str | None:
    """Return why a type prices a row: ``published``, ``measured``, ``told``, ``substitute`` or ``cheapest``."""
    if row.price is None:
        return None
    if row.price.substitutes is not None:
        return "substitute"
    if not is_own_machine(row, row.price):
        return "cheapest"
    if row.isolation.attached:
        return "told"
    return "measured" if row.published_type is None else "published"


def measured_architecture(row: Row) -> str | None:
    """Return the architecture of the machine that measured a row, if known."""
    return None if row.machine is None else architecture(row.machine.architecture)


def other_machine(row: Row, price: Price | None) -> str | None:
    """Return a price's architecture, or its GPU model, if the row was measured on another one."""
    if price is None:
        return None
    if measured_architecture(row) not in (None, price.architecture):
        return price.architecture
    return price.gpu_model if _other_gpu(row, price) else None


def _other_gpu(row: Row, price: Price) -> ForeignText | None:
    """Return the GPU that measured a row (NVML's name) if the priced type has another model."""
    if not row.gpus or row.machine is None or not row.machine.gpu_models or price.gpu_model is None:
        return None
    model = row.machine.gpu_models[0]
    # "a10g" is "NVIDIA A10G", "h100" is "NVIDIA H100 80GB HBM3"; "t4" is not "T4G".
    priced, there = (set(re.findall(r"[a-z0-9]+", str(name).lower())) for name in (price.gpu_model, model))
    return None if priced <= there else model


def architecture(machine: ForeignText) -> str:
    """Return a machine's architecture as the facts of instance types name it."""
    return _ARCHITECTURES.get(str(machine), str(machine))


def gpu_memory_bytes(row: Row) -> int | None:
    """Return the memory each GPU needs: the paper's type's, or its share of the peak; ``None``: unknown."""
    if not row.gpus or row.gpu_memory_bytes is not None:
        return row.gpu_memory_bytes if row.gpus else None
    # The spread of a peak over several GPUs is unknown; an even spread needs the least.
    return None if row.resources.peak_gpu_bytes is None else -(-row.resources.peak_gpu_bytes // row.gpus)


def _on(instance_type: str, tariff: Tariff) -> MachineChoice:
    snapshot = tariff.snapshot
    if instance_type in snapshot.by_type:
        instance, usd = snapshot.by_type[instance_type]
        return _price(Offer(instance, snapshot.region, snapshot.term, usd, snapshot.as_of)), None
    gone = snapshot.why_unpriced(instance_type)
    if instance_type not in tariff.known:
        if tariff.foreign(instance_type):
            provider = _of_others(snapshot.provider, tariff.root)[instance_type]
            return None, f"{instance_type} is a type of another provider, {provider}"
        facts = f"instances/{snapshot.provider}.csv"
        return None, f"{gone}, and its resources are not known; add a row for it to {facts}, or price at another date"
    offer = offers.successor(tariff.known[instance_type], snapshot)
    if offer is None:
        return None, f"{gone}, and no type there has at least its resources; price at another date"
    name = offer.instance.instance_type
    return replace(_price(offer), substitutes=instance_type), (
        f"{gone}; substituted by {name}, the cheapest with at least its resources (local hard disks are not compared), "
        "latency not re-measured"
    )


@functools.cache
def _of_others(provider: str, root: Path | None) -> Mapping[str, str]:
    """Return all known types of other providers with their provider."""
    others = [name for name in instances.providers(root) if name != provider]
    return {instance_type: name for name in others for instance_type in instances.read_instances(name, root)}


def sequential(row: Row, price: Price | None, note: str | None) -> Estimate:
    """Return the cost of a million queries one after the other, or the reason why it is missing."""
    if row.scenario == "mixed":
        return Estimate(
            None, reason="scenario mixed: latency holds waiting and the work of updates; it prices no query"
        )
    if row.scenario != "single_stream":
        return Estimate(
            None, reason=f"scenario {row.scenario}: latency holds waiting or batches, so it prices no query"
        )
    if price is None:
        return Estimate(None, reason=note)
    return cost.sequential(row.latency.mean_s, price.usd_per_hour)


def saturated(row: Row, price: Price | None, note: str | None) -> Estimate:
    """Return the cost of a million queries on a busy machine, or the reason why it is missing."""
    if row.scenario == "single_stream":
        return Estimate(None, reason="no throughput in scenario single_stream; measure scenario server")
    if price is None:
        return Estimate(None, reason=note)
    if row.throughput_qps.value is None:
        return row.throughput_qps
    whole = row.isolation.attached or (row.cpus, row.gpus) == (price.vcpus, price.gpus)
    if not whole:
        has, all_of = (_resources(*each) for each in ((row.cpus, row.gpus), (price.vcpus, price.gpus)))
        return Estimate(
            None,
            reason=f"the throughput was measured on {has}, but {price.instance_type} has {all_of}; "
            f"measure on a hardware profile with {all_of}",
        )
    found = cost.saturated(row.throughput_qps, price.usd_per_hour)
    target = _target(row)
    return replace(found, reason="; ".join(part for part in (target, found.reason) if part))


def metered(row: Row, tariff: Tariff) -> tuple[Estimate, tuple[ServerlessQuote, ...]]:
    """Return the cost of a million queries that are paid one by one, and every serverless offer that holds the row.

    A missing cost has its reason.  Offers have the architecture that measured, as machines have, unless the tariff's
    choice names another.
    """
    here = _serverless_architecture(row, tariff)
    reason = _reason_not_serverless(row, tariff)
    if reason is not None or tariff.serverless is None:
        return Estimate(None, reason=reason), ()
    load = Load(
        cpus=row.cpus,
        memory_bytes=row.memory_bytes,
        mean_s=row.latency.mean_s,
        cpu_s=row.cpu.of_system_s,
        used_bytes=row.resources.peak_anon_bytes,
        cold_start_s=row.resources.cold_start_s,
    )
    quotes = serverless.quotes(tariff.serverless, load, here)
    if (best := serverless.cheapest(quotes)) is not None:
        return best.usd, quotes
    if row.latency.mean_s.value is None:
        return row.latency.mean_s, quotes
    holds = f"{counted(row.cpus, 'CPU')} and {row.memory_bytes / cost.GIB:g} GiB"
    offers_here = f"no {f'{here} ' if here else ''}offer that is paid by the request"
    return Estimate(None, reason=f"{offers_here} holds {holds} in {tariff.serverless}"), quotes


def _reason_not_serverless(row: Row, tariff: Tariff) -> str | None:
    """Return why no serverless offer is asked for a row; ``None``: all are."""
    if row.scenario != "single_stream":
        return f"scenario {row.scenario}: latency holds waiting or batches, so it prices no query"
    if row.isolation.attached:
        return "the service runs on machines of its own; a serverless offer does not run it"
    if not row.cpus:
        return "published without hardware, so nothing can be priced"
    if row.gpus:
        return "no serverless offer in the prices has a GPU"
    if tariff.serverless is None:
        at = tariff.snapshot.as_of
        return f"no serverless prices of {at} or before are stored; take a later --as-of, or add some ({_PRICES_PAGE})"
    return None


def _serverless_architecture(row: Row, tariff: Tariff) -> str | None:
    """Return the architecture of offers for a row: the one chosen, else the one that measured; ``None``: any."""
    if tariff.choice.architecture != "measured":
        return None if tariff.choice.architecture == "any" else tariff.choice.architecture
    published = tariff.known.get(row.published_type or "")
    return measured_architecture(row) if published is None else published.architecture


def _target(row: Row) -> str:
    if row.latency_target_s is None:
        return "no latency target" + (": batches, however long each query waits" if row.scenario == "offline" else "")
    return f"{row.latency_percentile:g} % of queries within {row.latency_target_s * 1e3:g} ms"


def tokens(row: Row, snapshot: TokenSnapshot | None) -> tuple[TokenPrice | None, Estimate]:
    """Return the token price of a row's language model, and the token cost of a million queries.

    A system without a language model has neither, and needs no reason.
    """
    if row.token_model is None:
        return None, Estimate(None)
    if snapshot is None:
        return None, Estimate(None, reason=f"no token prices of that date; add some ({_PRICES_PAGE})")
    price = snapshot.models.get(row.token_model)
    if price is None:
        hint = did_you_mean(row.token_model, snapshot.models)
        return None, Estimate(None, reason=f"{snapshot} have no model {row.token_model!r}{hint}")
    found = TokenPrice(
        row.token_model,
        price.usd_in,
        price.usd_out,
        price.batch_discount,
        str(snapshot.as_of),
        f"{snapshot.source}; {price.page}",
    )
    prompt, completion = (row.counts.get(name, -1.0) for name in ("prompt_tokens", "completion_tokens"))
    if min(prompt, completion) < 0:  # an adapter may report anything
        return found, Estimate(None, reason="the system counts no prompt and completion tokens")
    return found, Estimate(token_prices.usd_per_million_queries(price, prompt, completion))


def _build(row: Row, tariff: Tariff) -> tuple[Price | None, Estimate]:
    """Return the cost of indexing a million documents, on the building type, else the cheapest with its envelope."""
    if row.index.build_s is None:
        return None, Estimate(None, reason="no build of an index is stored with this result")
    if row.index.envelope is None:
        return None, Estimate(None, reason="its components' indexes were built on different profiles")
    built_on = row.index.machine or row.machine
    measured = None if built_on is None else architecture(built_on.architecture)
    own = None if tariff.choice.cheapest else _known_type(built_on, tariff)
    price = tariff.on(own)[0] if own else tariff.cheapest(row.index.envelope, measured=measured)
    if price is None:
        return None, Estimate(None, reason=_no_type(row.index.envelope, tariff))
    if not row.index.documents:
        return price, Estimate(None, reason="the result does not say how many documents were indexed; measure it again")
    usd = cost.build_usd_per_million_documents(row.index.build_s, price.usd_per_hour, row.index.documents)
    return price, Estimate(usd)


def _storage(row: Row, tariff: Tariff) -> Estimate:
    if row.index.size_bytes is None:
        return Estimate(None, reason="no size of an index is stored with this result")
    if tariff.storage is None:
        at = tariff.snapshot
        return Estimate(
            None,
            reason=f"no price of storage of {at.provider} {at.region} is dated {at.as_of} or before; "
            f"add one ({_PRICES_PAGE})",
        )
    return Estimate(cost.storage_usd_per_month(row.index.size_bytes, tariff.storage.usd_per_gib_month))


def _price(offer: Offer) -> Price:
    instance = offer.instance
    return Price(
        instance_type=instance.instance_type,
        architecture=instance.architecture,
        vcpus=instance.vcpus,
        memory_bytes=instance.memory_bytes,
        gpus=instance.gpus,
        gpu_model=instance.gpu_name,
        region=offer.region,
        term=offer.term,
        usd_per_hour=offer.usd_per_hour,
        date=str(offer.as_of),
    )


def _no_type(envelope: Envelope, tariff: Tariff, gpu_memory: int | None = None) -> str:
    wanted = f"{envelope.cpus} CPU, {envelope.memory_bytes / cost.GIB:g} GiB, {envelope.gpus} GPU"
    if gpu_memory is not None:
        wanted += f" of {gpu_memory / cost.GIB:.4g} GiB"
    return f"no instance type in the prices of {tariff.snapshot} provides {wanted}"


def _resources(cpus: int, gpus: int) -> str:
    return " and ".join((counted(cpus, "vCPU"), *([counted(gpus, "GPU")] if gpus else [])))
