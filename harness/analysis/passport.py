"""Passports: one row in a kilobyte of sealed YAML, which is read as a row again, without samples.

A file is a list of entries as Hugging Face's ``.eval_results`` has them (``dataset``, ``value``, ``date``, ``source``,
``notes``); each has the passport under ``harness``, a key that other readers ignore.  A seal shows an accident, not a
forger: a passport is a claim that can be measured again, by the hashes in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator

from harness.analysis.table import (
    Cause,
    Finding,
    Latency,
    Machine,
    Row,
    Table,
    Validity,
    processors,
)
from harness.config import ConfigModel, validate
from harness.driver.records import Outcome
from harness.errors import FileError, UsageError
from harness.estimate import Estimate
from harness.results import isolation, reader, seals
from harness.results.reader import StoredJob
from harness.untrusted import ForeignText, one_line, read_whole, reading

SUFFIXES = (".yaml", ".yml")
NOTE = "from a passport: its samples are not here, so no figure of it can be computed again"
# Some 200 passports.
_MOST_BYTES = 256 << 10
_MOST_DEEP = 6
_MIB, _GIB = 2**20, 2**30
_REMEDY = "export the passport again"
_MISSING = "the passport does not have it"

# ConfigModel refuses what is not a printable line.
Name = Annotated[str, Field(min_length=1, max_length=200)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9A-Za-z:]{1,71}$")]
# No figure of a search is larger.
Amount = Annotated[float, Field(ge=0, le=1e15)]
Count = Annotated[int, Field(ge=0, le=10**12)]
Day = Annotated[str, Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")]


def _with_ends(value: Any) -> Any:
    """Give a number without an interval its missing ends; refuse ends that do not hold it."""
    numbers = [value, None, None] if isinstance(value, int | float) else value
    if isinstance(numbers, list) and len(numbers) == 3 and all(isinstance(each, int | float) for each in numbers):
        middle, low, high = numbers
        if not low <= middle <= high:
            raise ValueError(f"{numbers} is no value with the ends of its interval; write [value, low, high]")
    return tuple(numbers) if isinstance(numbers, list) else numbers


# A value, with the ends of its 95 % interval if it has one.
Numbers = Annotated[tuple[Amount, Amount | None, Amount | None], BeforeValidator(_with_ends)]


class MeasuringMachine(ConfigModel):
    """The machine that measured."""

    cpu: ForeignText
    architecture: ForeignText
    host_cpus: Count
    gpu: ForeignText | None = None
    instance_type: ForeignText | None = None
    harness_version: ForeignText
    harness_commit: ForeignText | None = None


class EnvelopeFacts(ConfigModel):
    """The envelope."""

    profile: Name
    cpus: Annotated[Count, Field(gt=0)]
    memory_mib: Annotated[Count, Field(gt=0)]
    gpus: Count = 0
    enforced_by: Name


class Protocol(ConfigModel):
    """The protocol: counts of queries, trials and processes, the hits that were asked for, and the target of a load."""

    scenario: Name
    queries: Count
    trials: Count
    processes: Count
    k: Count
    latency_target_ms: Amount | None = None
    percentile: Amount | None = None


class DatedPrice(ConfigModel):
    """The price of the day, and what it makes of a million queries."""

    date: Day
    instance_type: Name
    usd_per_hour: Amount
    usd_per_million: Numbers | None = None


class Hashes(ConfigModel):
    """Hashes: ``key`` of everything that decides the job, ``recipe`` of all that the image is made of, with weights.

    The others name the dataset's files by the first 16 digits.
    """

    key: Sha256
    recipe: Sha256
    corpus: Sha256
    queries: Sha256
    qrels: Sha256


class Passport(ConfigModel):
    """One row: what was measured, how, on what, and the figures.

    ``figures`` are named as in columns.md, ``measures`` as by ir_measures.  ``doubts`` names the causes of findings.
    """

    passport: Literal[1] = 1
    system: Name
    origin: Name | None = None
    suite: Name
    dataset: Name
    hardware: EnvelopeFacts
    protocol: Protocol
    machine: MeasuringMachine
    validity: Validity
    doubts: tuple[Cause, ...] = ()
    measures: dict[Name, Numbers]
    figures: dict[Name, Numbers]
    price: DatedPrice | None = None
    token_model: Name | None = None
    hashes: Hashes

    @field_validator("figures")
    @classmethod
    def _has_a_rate(cls, figures: dict[str, Numbers]) -> dict[str, Numbers]:
        if 0 in figures.get("throughput_qps", ()):
            raise ValueError("throughput_qps is 0; leave it out, or write a rate above 0")
        return figures


class HubDataset(ConfigModel):
    """Dataset and task as the hub names them."""

    id: Name
    task_id: Name


class HubSource(ConfigModel):
    """Place of the whole results."""

    url: ForeignText
    name: ForeignText = ForeignText("results of harness")


class PassportEntry(ConfigModel):
    """An entry of ``.eval_results`` with its passport.  ``seal`` is the digest of all other fields."""

    dataset: HubDataset
    value: Amount
    date: Day
    source: HubSource | None = None
    notes: ForeignText
    harness: Passport
    seal: Sha256


@dataclass(frozen=True)
class _Column:
    """A figure of a passport: its place in a row, and the factor to its unit there.

    ``restored`` is its place in a row that is read from a passport, if that is another one.  A ``whole`` number has no
    interval.
    """

    place: str
    scale: float
    whole: bool = False
    restored: str = ""

    def read(self, row: Row) -> Estimate | float | None:
        """Return the figure of a row."""
        figure: Estimate | float | None = attrgetter(self.place)(row)
        return figure

    def write(self, row: Row, value: Estimate) -> Row:
        """Return a row with the figure."""
        record, _, name = (self.restored or self.place).rpartition(".")
        changes: dict[str, Any] = {name: round(value.value or 0.0) if self.whole else value}
        return replace(row, **{record: replace(getattr(row, record), **changes)} if record else changes)


# By the names of columns.md.
COLUMNS = {
    "latency_mean_ms": _Column("latency.mean_s", 1e3),
    "p95_ms": _Column("latency.p95_s", 1e3),
    "p99_ms": _Column("latency.p99_s", 1e3),
    "throughput_qps": _Column("throughput_qps", 1.0),
    "cpu_per_query_ms": _Column("cpu.of_system_s", 1e3, restored="cpu.per_query_s"),
    "peak_anon_mib": _Column("resources.peak_anon_bytes", 1 / _MIB, whole=True),
    "peak_gpu_mib": _Column("resources.peak_gpu_bytes", 1 / _MIB, whole=True),
    "index_mib": _Column("index.size_bytes", 1 / _MIB, whole=True),
}
_COUNTS = ("prompt_tokens", "completion_tokens")


@dataclass(frozen=True)
class Hub:
    """Names of the dataset and the task on the hub, and the address of the whole results; by default harness's own."""

    dataset: str | None = None
    task: str | None = None
    source: str | None = None


def of_row(row: Row, job: StoredJob, measure: str, hub: Hub) -> dict[str, Any]:
    """Return the sealed entry of a priced row.

    Args:
        row: one that was measured in an envelope.
        job: the job that names its recipe.
        measure: the measure that is the entry's value.
        hub: names on the hub.

    Raises:
        UsageError: a passport cannot hold the row.
    """
    if (why := _refused(row, measure)) is not None:
        raise UsageError(f"{row.system}/{row.dataset}/{row.scenario}/{row.profile}: {why}")
    entry = {
        "dataset": {"id": hub.dataset or row.dataset, "task_id": hub.task or measure},
        "value": _rounded(row.measures[measure].value or 0.0),
        "date": (row.started_at or "")[:10],
        "source": {"url": hub.source, "name": "results of harness"} if hub.source else None,
        "notes": _in_words(row),
        "harness": _passport(row, job.result.spec.recipe),
    }
    whole = _present(entry)
    sealed = {**whole, "seal": seals.of(whole)}
    validate(PassportEntry, sealed, Path("the passport"))  # harness writes nothing that it would refuse
    return sealed


def _passport(row: Row, recipe: str) -> dict[str, Any]:
    """Return the fields of :class:`Passport`."""
    figures = {name: _numbers(column.read(row), column.scale) for name, column in COLUMNS.items()}
    figures |= {name: _numbers(row.counts.get(name)) for name in _COUNTS}
    measures = {name: _numbers(value) for name, value in row.measures.items()}
    doubts = dict.fromkeys(each.cause for each in row.findings if each.validity.doubt)
    machine, price = row.machine, row.price
    assert machine is not None, "a row without a machine is refused"
    return {
        "passport": 1,
        "system": row.system,
        "origin": row.origin,
        "suite": row.suite,
        "dataset": row.dataset,
        "hardware": {
            "profile": row.profile,
            "cpus": row.cpus,
            "memory_mib": row.memory_bytes // _MIB,
            "gpus": row.gpus,
            "enforced_by": row.isolation.name,
        },
        "protocol": {
            "scenario": row.scenario,
            "queries": row.queries,
            "trials": row.trials,
            "processes": row.jobs,
            "k": row.k,
            "latency_target_ms": None if row.latency_target_s is None else row.latency_target_s * 1e3,
            "percentile": row.latency_percentile,
        },
        "machine": _machine(machine),
        "validity": row.validity.value,
        "doubts": [cause.value for cause in doubts],
        "measures": measures,
        "figures": figures,
        "price": price
        and {
            "date": price.date,
            "instance_type": price.instance_type,
            "usd_per_hour": price.usd_per_hour,
            "usd_per_million": _numbers(row.usd_per_million),
        },
        "token_model": row.token_model,
        "hashes": {
            "key": row.key,
            "recipe": recipe,
            "corpus": _start(row.corpus_sha256),
            "queries": _start(row.sample_sha256),
            "qrels": _start(row.qrels_sha256),
        },
    }


def _machine(machine: Machine) -> dict[str, Any]:
    """Return the fields of :class:`MeasuringMachine`."""
    return {
        "cpu": str(machine.cpu_model),
        "architecture": str(machine.architecture),
        "host_cpus": machine.host_cpus,
        "gpu": str(machine.gpu_models[0]) if machine.gpu_models else None,
        "instance_type": str(machine.instance_type) if machine.instance_type else None,
        "harness_version": str(machine.harness_version),
        "harness_commit": str(machine.harness_commit)[:12] if machine.harness_commit else None,
    }


def _refused(row: Row, measure: str) -> str | None:
    """Return why a row can have no passport."""
    if row.isolation.published or row.isolation.scripted or row.isolation.of_passport:
        return "was not measured here; a passport is of stored jobs"
    if row.isolation.attached or row.machine is None:
        return "harness does not know the machine of a service that ran already; a passport names it"
    if row.outcome is not Outcome.OK:
        return f"ended {row.outcome.value}; a passport has figures"
    if row.measured(measure) is None:
        return f"has no {measure}, which is the value that others read; name another with --measures"
    return None


def _in_words(row: Row) -> str:
    latency_s, throughput = row.latency.mean_s.value, row.throughput_qps.value
    speed = f"{throughput:.3g} queries/s" if throughput else f"{(latency_s or 0.0) * 1e3:.3g} ms a query"
    hardware = f"{processors(row.cpus, row.gpus)}, {row.memory_bytes / _GIB:g} GiB"
    return f"{row.system}: {speed} on {hardware}"


def _numbers(value: Estimate | float | None, scale: float = 1.0) -> float | list[float | None] | None:
    """Return a value with the ends of its interval, if it has one, to six digits."""
    if not isinstance(value, Estimate):
        return None if value is None else _rounded(value * scale)
    if value.value is None:
        return None
    ends = [None if end is None else _rounded(end * scale) for end in (value.low, value.high)]
    return _rounded(value.value * scale) if ends == [None, None] else [_rounded(value.value * scale), *ends]


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def _start(sha256: str | None) -> str | None:
    """Return the first digits of a hash, which tell honest files apart."""
    return None if sha256 is None else sha256[:16]


def _present(value: Any) -> Any:
    """Leave out what is missing, and empty parts; the ends of an interval stay."""
    if not isinstance(value, Mapping):
        return value
    inside = {name: _present(item) for name, item in value.items()}
    return {name: item for name, item in inside.items() if item is not None and item not in ({}, [])}


def written(entries: Iterable[Mapping[str, Any]]) -> str:
    """Return the text of a file with these entries.

    Raises:
        UsageError: it would be too large to be read.
    """
    import yaml  # late: most commands read no passport

    text = yaml.safe_dump(list(entries), sort_keys=False, default_flow_style=None, allow_unicode=True, width=120)
    if len(text.encode()) > _MOST_BYTES:
        raise UsageError(f"more than {_MOST_BYTES >> 10} KiB of passports in one file; choose rows with --only")
    return str(text)


def is_in(results: Path) -> bool:
    """Return whether passports are at a path: a file, or a folder that holds YAML files and no suite."""
    if results.suffix in SUFFIXES:
        return results.is_file()
    return bool(_files(results)) and next(reader.result_paths(results, []), None) is None


def read(results: Path) -> tuple[PassportEntry, ...]:
    """Read the passports of a file or a folder.

    Raises:
        FileError: a file cannot be read, is no passport, or was changed since it was sealed.
    """
    return tuple(read_entry(*each) for each in entries(results))


def read_entry(path: Path, number: int, raw: dict[str, Any]) -> PassportEntry:
    """Read one entry; raises FileError as :func:`read` does."""
    place = f"{path}: entry {number}"
    if (broken := broken_seal(raw)) is not None:
        raise FileError(f"{place}: {seals.difference_of(broken)}; {_REMEDY}")
    passport = raw["harness"]
    if isinstance(passport, dict) and passport.get("passport", 1) != 1:
        version = one_line(str(passport["passport"]), 20)
        raise FileError(f"{place}: a passport of version {version}, and this harness reads 1; update harness")
    return validate(PassportEntry, raw, Path(place))


def broken_seal(raw: dict[str, Any]) -> tuple[str, str] | None:
    """Return the stored seal and the seal by the content, if they differ."""
    try:
        return seals.broken(raw)
    except (TypeError, ValueError, RecursionError):  # no passport has such values
        return str(raw.get("seal")), "a value that no passport has"


def entries(results: Path) -> list[tuple[Path, int, dict[str, Any]]]:
    """Return the entries that are passports, unchecked, with file and number.

    Raises:
        FileError: a file is not YAML, or no entry is a passport.
    """
    found = []
    for path in _files(results):
        with reading(path, _REMEDY, damage=(OSError, RecursionError, ValueError)):
            content = _plain(read_whole(path, _MOST_BYTES))
        for number, raw in enumerate(content if isinstance(content, list) else (), start=1):
            if isinstance(raw, dict) and "harness" in raw:
                found.append((path, number, raw))
    if not found:
        raise FileError(f"{results}: no passport in it; make one with `harness export --format passport`")
    return found


def _files(results: Path) -> list[Path]:
    if results.suffix in SUFFIXES:
        return [results]
    if not results.is_dir():
        return []
    return sorted(path for path in results.iterdir() if path.suffix in SUFFIXES)


def _plain(content: bytes) -> Any:
    """Read YAML without references, which can make a small file large, and without deep brackets, which take long.

    Raises:
        ValueError: it is not such YAML.
    """
    import yaml

    depth = 0
    try:
        for event in yaml.parse(content, yaml.SafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _MOST_DEEP or isinstance(event, yaml.AliasEvent):
                raise ValueError("a reference (*name) or deep brackets, which no passport has")
        return yaml.safe_load(content)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise ValueError("not YAML" + (f", from line {mark.line + 1} on" if mark else "")) from error


def table(found: Sequence[PassportEntry], measures: Sequence[str] = ()) -> Table:
    """Return passports as rows without prices; two with one seal are one.

    Args:
        found: the passports.
        measures: of the table; by default all of the passports, the first of them as their value.
    """
    entries = {entry.seal: entry for entry in found}.values()
    foremost = [name for entry in entries for name in (entry.dataset.task_id, *entry.harness.measures)]
    known = {name for entry in entries for name in entry.harness.measures}
    names = tuple(measures) or tuple(dict.fromkeys(name for name in foremost if name in known))
    return Table(tuple(_row(entry, names) for entry in entries), names)


def _row(entry: PassportEntry, measures: Sequence[str]) -> Row:
    passport, missing = entry.harness, _estimate(None)
    hardware, protocol, machine, hashes = passport.hardware, passport.protocol, passport.machine, passport.hashes
    row = Row(
        suite=passport.suite,
        system=passport.system,
        dataset=passport.dataset,
        scenario=protocol.scenario,
        profile=hardware.profile,
        isolation=isolation.named(hardware.enforced_by).in_passport(),
        outcome=Outcome.OK,
        validity=passport.validity,
        key=hashes.key,
        origin=passport.origin,
        started_at=entry.date,
        machine=Machine(
            machine.cpu,
            machine.architecture,
            ForeignText("unknown"),
            None,
            None,
            machine.harness_version,
            machine.harness_commit,
            (machine.gpu,) if machine.gpu else (),
            machine.instance_type,
            machine.host_cpus,
        ),
        cpus=hardware.cpus,
        memory_limit_bytes=hardware.memory_mib * _MIB,
        gpus=hardware.gpus,
        k=protocol.k,
        sample_sha256=hashes.queries,
        corpus_sha256=hashes.corpus,
        qrels_sha256=hashes.qrels,
        queries=protocol.queries,
        trials=protocol.trials,
        jobs=protocol.processes,
        keys=(hashes.key,),
        latency_target_s=None if protocol.latency_target_ms is None else protocol.latency_target_ms / 1e3,
        latency_percentile=protocol.percentile,
        token_model=passport.token_model,
        measures={name: _estimate(passport.measures.get(name)) for name in measures},
        latency=Latency(mean_s=missing, p50_s=missing, p95_s=missing, p99_s=missing),
        throughput_qps=missing,
        counts={name: passport.figures[name][0] for name in _COUNTS if name in passport.figures},
        findings=tuple(
            Finding(cause, passport.validity, f"{cause.value.replace('_', ' ')}, as the passport says")
            for cause in passport.doubts
        ),
        notes=(NOTE,),
    )
    for name, column in COLUMNS.items():
        if name in passport.figures:
            row = column.write(row, _estimate(passport.figures[name], column.scale))
    return row


def _estimate(numbers: Numbers | None, scale: float = 1.0) -> Estimate:
    if numbers is None:
        return Estimate(None, reason=_MISSING)
    return Estimate(*numbers).map(lambda number: number / scale)
