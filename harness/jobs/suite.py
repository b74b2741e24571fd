"""Suite files (``suites/*.toml``), checked, and the cells that they declare."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from harness import config
from harness.config import NAME_PATTERN, ConfigModel, read_toml, validate
from harness.datasets import dataset_name
from harness.datasets.dataset import Language
from harness.driver.records import Envelope, Outcome, Scalar, ScenarioParams
from harness.errors import FileError, UnknownName, UsageError, did_you_mean, nearest_or_known, quoted_name
from harness.evaluation import measure_names
from harness.jobs.suite_protocol import SuiteProtocol
from harness.jobs.suite_scenarios import Mixed, Offline, Scenario, Server
from harness.launch import service_address
from harness.pricing import instances
from harness.pricing.instances import HardwareProfile
from harness.results.reader import names_folder
from harness.results.schema import (
    NULL_SERVICE,
    NULL_SYSTEM,
    NULL_SYSTEMS,
    Cell,
    SweepPoint,
    base_system,
    matches,
    sized_name,
    split_size,
    unmatched,
)
from harness.results.suite_record import INSTANCE_PATTERN, ToldMachine

# The one profile of a service that runs already, and what its protocol asks less than others.
ATTACHED = "attached"
GENTLE: dict[str, Any] = {"warmup_cap": None, "repeats": 0, "trials": 3, "load_timeout_s": 60.0}
# Names that harness gives to indexes in such a service: it removes no other.
OWN_INDEX = r"harness-[0-9a-f]{8}"
# A grid of a few lists soon has more points than there is time to measure.
MOST_POINTS = 500
_FOLDER_RULE = "its last part must be 1 to 255 bytes of printable characters (a blank is the only white space)"
_NAME_RULE = "lowercase letters, digits, '.', '_', '-'; at most 63"


def _check_once(value: tuple[Any, ...]) -> tuple[Any, ...]:
    twice = {str(name) for name in value if value.count(name) > 1}
    if twice:
        raise ValueError(f"{', '.join(sorted(twice))} comes twice; name each once")
    return value


def _check_dataset_names(value: tuple[str, ...]) -> tuple[str, ...]:
    names = [dataset_name(declared) for declared in value]
    for declared, name in zip(value, names, strict=True):
        if not names_folder(name):
            remedy = "write a folder's own name, e.g. '../my-data', or rename it"
            raise ValueError(f"{declared!r} does not name a dataset: {_FOLDER_RULE}; {remedy}")
        if names.count(name) > 1:
            raise ValueError(f"two datasets are called {name!r}; rename a folder")
    return value


def _check_pairs(value: dict[str, str]) -> dict[str, str]:
    for system, partner in value.items():
        if system == partner:
            raise ValueError(f"{system!r} is paired with itself; name another system")
    return value


Names = Annotated[tuple[str, ...], Field(min_length=1), AfterValidator(_check_once)]
DatasetNames = Annotated[Names, AfterValidator(_check_dataset_names)]
Pairs = Annotated[dict[str, str], AfterValidator(_check_pairs)]
Values = Annotated[tuple[Scalar, ...], Field(min_length=1), AfterValidator(_check_once)]


class Expectation(ConfigModel):
    """Cells with an expected outcome that is not ``ok``: it counts as done, not as a failure."""

    system: str = Field(description="system name")
    profile: str = Field(description="hardware profile name")
    outcome: Outcome = Field(description="the outcome foreseen")


class Restriction(ConfigModel):
    """Hardware profiles that only some of the suite's systems are measured on."""

    profiles: Names = Field(description="hardware profile names; each in one `[[restrict]]`")
    systems: Names = Field(description="the only systems that are measured on them")


class CellGroup(ConfigModel):
    """Systems, datasets and hardware profiles that belong together: their product is measured."""

    systems: Names = Field(description="system names")
    datasets: DatasetNames = Field(description="as at the top level")
    profiles: Names = Field(
        description="hardware profiles", json_schema_extra={"default": "`profiles` of the top level"}
    )


class RunningService(ConfigModel):
    """The service at ``url``, as far as its user tells harness of it; none of this is verified."""

    instance: str | None = Field(
        default=None,
        pattern=INSTANCE_PATTERN,
        description="the instance type that it runs on, e.g. `r7g.large`: the rows are priced on it",
    )
    usd_per_hour: float | None = Field(
        default=None, gt=0, description="what its machines cost an hour, instead of an instance type"
    )
    build: bool = Field(
        default=False,
        description="build an index in the service, named by the parameter `index`, and remove it at the end; without"
        " this key nothing is written there",
    )
    params: dict[str, Scalar] = Field(
        default={}, description="parameters of the suite's systems, e.g. the name of the service's index"
    )


class SizeSweep(ConfigModel):
    """Datasets at several numbers of documents, so that reports see how cost grows with size."""

    documents: Annotated[tuple[Annotated[int, Field(ge=1, le=999_999_999)], ...], AfterValidator(_check_once)] = Field(
        default=(),
        description="`[10_000, 30_000, 100_000, 300_000]` puts `my-data@10000` ... in the place of each dataset: a"
        " sample with all judged documents, or the corpus among generated distractors. Each size's documents are in"
        " the larger ones; four sizes or more make a [law](../method/sizes.md)",
    )


class Ec2Settings(ConfigModel):
    """Machines for ``--launcher ec2`` and ``--launcher batch``, where they differ from the priced machines."""

    instances: dict[str, str] = Field(
        default={},
        description='instance types by hardware profile, e.g. `instances = { cpu1-mem4 = "m6i.large" }`; by default'
        " the cheapest that fits, with a CPU for harness; in place of one that is no longer rented, the cheapest with"
        " its resources",
    )
    ami: Literal["al2023", "debian-12"] = Field(
        default="al2023",
        description="operating system: Amazon Linux 2023 or Debian 12; GPU profiles always have Amazon's own for GPUs",
    )


class Suite(ConfigModel):
    """Systems x datasets x scenarios x hardware profiles, less restrictions, and a protocol.

    With groups, each group has a product; ``systems``, ``datasets`` and ``profiles`` then hold the names of all groups.
    """

    name: str = Field(
        pattern=NAME_PATTERN,
        description="names the folder of the results: lowercase letters, digits, '.', '_', '-'",
        json_schema_extra={"default": "the file's name"},
    )
    systems: Names = Field(description="system names (`harness systems`)")
    datasets: DatasetNames = Field(
        description="names of shipped datasets, folders relative to the suite file (`./my-data`, with a split"
        " `./my-data#dev`), or ids of ir_datasets (`beir/scifact/test`)",
    )
    profiles: Names = Field(
        description="hardware profiles (instance_profiles/hardware.toml, or `[hardware]` below); left out with `url`"
    )
    url: str | None = Field(
        default=None,
        description="address of a service that runs already (`http://`, `https://` or `postgresql://`), without"
        " credentials: the systems are its clients, and no machine is measured ([services](../guides/services.md))",
    )
    service: RunningService = Field(default=RunningService(), description="what is known of the service at `url`")
    sweep: dict[str, Annotated[dict[str, Values], Field(min_length=1)]] = Field(
        default={},
        description="parameters of a system in several values: `[sweep.bm25-minilm]`, `depth = [10, 20, 50]` put"
        " `bm25-minilm-depth10` ... in its place; several lists are a grid, the product of all. The points share the"
        " image, and the index if they differ in search parameters. A component's parameters are"
        ' `"<component>.<name>"`: its index is built for each value, the other component\'s once',
    )
    sizes: SizeSweep = Field(default=SizeSweep(), description="datasets at several numbers of documents")
    curve: dict[Annotated[str, Field(pattern=NAME_PATTERN)], Annotated[Names, Field(min_length=2)]] = Field(
        default={},
        description="systems that differ in parameters alone, drawn as one curve like the points of a sweep: `[curve]`,"
        ' `colbertv2 = ["colbertv2-s", "colbertv2-m", "colbertv2-l"]`',
    )
    group: tuple[CellGroup, ...] = Field(
        default=(), description="instead of `systems` and `datasets`: which systems are measured on which datasets"
    )
    hardware: dict[Annotated[str, Field(pattern=NAME_PATTERN)], HardwareProfile] = Field(
        default={}, description="hardware profiles of this suite alone, by name"
    )
    scenarios: Annotated[tuple[Scenario, ...], AfterValidator(_check_once)] = Field(
        default=("single_stream",),
        min_length=1,
        description="how queries reach the system: `single_stream` (one at a time), `offline` (batches), `server`"
        " (Poisson arrivals), `mixed` (Poisson arrivals beside inserts and deletes)",
    )
    build_profile: str | None = Field(
        default=None, description="hardware profile of index builds; by default all CPUs and half of the host's memory"
    )
    languages: dict[str, Language] = Field(
        default={},
        description='language codes by dataset, e.g. `languages = { my-data = "ar" }`, where its folder states none or'
        " another; systems with analysers follow it",
    )
    measures: Annotated[tuple[str, ...], AfterValidator(_check_once)] = Field(
        default=(),
        max_length=measure_names.MOST_NAMES,
        description="as ir_measures writes them; reports show the first, and all with `--wide`",
        json_schema_extra={"default": ", ".join(measure_names.DEFAULT)},
    )
    protocol: SuiteProtocol = Field(default=SuiteProtocol(), description="how jobs measure")
    offline: Offline = Field(default=Offline(), description="the `offline` scenario's parameters")
    server: Server = Field(default=Server(), description="the `server` scenario's parameters")
    mixed: Mixed = Field(default=Mixed(), description="the `mixed` scenario's parameters")
    overhead: bool = Field(
        default=True, description="measure the null system on each profile too: what harness itself adds to a query"
    )
    restrict: tuple[Restriction, ...] = Field(
        default=(), description="profiles for some systems only, where the suite is not the whole product"
    )
    same_index: Pairs = Field(
        default={},
        description="a [version](../guides/add-a-system.md#two-versions) that reads the index of another, where usually"
        ' each builds its own: `[same_index]`, `"tantivy@old" = "tantivy"`',
    )
    firstp: Pairs = Field(
        default={},
        description='the FirstP of each system that reads on, of the same model: `[firstp]`, `maxp = "firstp"`'
        " (of swept systems those with the same parameters); `harness report --layout long-documents` compares them",
    )
    exact: Pairs = Field(
        default={},
        description='the exact search of each approximate system, of the same model: `[exact]`, `hnsw = "flat"` (of'
        " swept systems those with the same parameters); `harness recall` compares them",
    )
    seeds: dict[Annotated[str, Field(pattern=NAME_PATTERN)], Annotated[Names, Field(min_length=2)]] = Field(
        default={},
        description="systems that are one model, trained with several seeds: `[seeds]`,"
        ' `maxp = ["maxp-s1", "maxp-s2", "maxp-s3"]`; `harness compare` and `harness report --layout long-documents`'
        " take the mean over them, query by query; `[firstp]` may name the model",
    )
    expect: tuple[Expectation, ...] = Field(default=(), description="outcomes foreseen that are not ok")
    ec2: Ec2Settings = Field(default=Ec2Settings(), description="what runs it on AWS")

    @property
    def variants(self) -> dict[str, SweepPoint]:
        """Return the systems that ``sweep`` makes, by name."""
        return {
            name: SweepPoint(system, params)
            for system, grid in self.sweep.items()
            for name, params in _points(system, grid)
        }

    def cells(self, only: str | None = None, services: Collection[str] = ()) -> list[Cell]:
        """Return the declared product less restrictions, or the part that ``only`` matches.

        Args:
            only: globs over ``system/dataset/scenario/profile``; without a slash, over any one of them.
            services: the systems that are services.
        """
        pattern = "*" if only is None else only
        parts = self.group or (CellGroup(systems=self.systems, datasets=self.datasets, profiles=self.profiles),)
        products = (
            itertools.product(part.systems, map(dataset_name, part.datasets), self.scenarios, part.profiles)
            for part in parts
        )
        declared = [Cell(self.name, *names) for names in dict.fromkeys(itertools.chain.from_iterable(products))]
        chosen = [cell for cell in declared if self.allows(cell.system, cell.profile) and matches(cell, pattern)]
        if not self.overhead:
            return chosen
        # The null system once on each profile; as a service, on each that a service has.
        dataset = dataset_name(self.datasets[0])
        found = list(chosen)
        for null, like in ((NULL_SYSTEM, frozenset(self.systems)), (NULL_SERVICE, frozenset(services))):
            profiles = {cell.profile for cell in chosen if cell.system in like}
            cells = [Cell(self.name, null, dataset, "single_stream", profile) for profile in self.profiles]
            if like and null not in self.systems:
                found += [cell for cell in cells if cell.profile in profiles or matches(cell, pattern)]
        return found

    def chosen(self, only: str | None, services: Collection[str] = ()) -> list[Cell]:
        """Return the cells that ``only`` matches, as :meth:`cells` does.

        Raises:
            UsageError: ``only``, or a glob of its list, matches none.
        """
        cells = self.cells(only, services)
        if only is not None and (wrong := unmatched(cells, only)) is not None:
            raise UsageError(
                f"--only {quoted_name(wrong)} matches no cell of the suite {self.name}; see `harness plan`"
            )
        return cells

    def envelopes(self) -> dict[str, Envelope]:
        """Return the limits of each hardware profile, including the profile of index builds.

        Raises:
            UnknownName: neither the suite nor harness has the profile.
        """
        if self.url:
            return {name: Envelope(name, 0, 0) for name in self.profiles}
        known = {**instances.hardware_profiles(), **{name: own.envelope(name) for name, own in self.hardware.items()}}
        names = dict.fromkeys((*self.profiles, *filter(None, (self.build_profile,))))
        for name in names:
            if name not in known:
                raise UnknownName("hardware profile", name, known, "or declare it: [hardware.NAME]")
        return {name: known[name] for name in names}

    @property
    def named_machine(self) -> ToldMachine | None:
        """The machine of the service at ``url``, if the suite names one."""
        named = ToldMachine(self.service.instance, self.service.usd_per_hour)
        return None if named == ToldMachine() else named

    def language(self, dataset: str) -> str | None:
        """Return the language that the suite gives a dataset, by its name in results."""
        return {dataset_name(name): code for name, code in self.languages.items()}.get(dataset)

    def scenario_params(self, scenario: str) -> ScenarioParams:
        """Return the parameters of a scenario."""
        given = {name: getattr(self, name).model_dump() for name in ("offline", "server", "mixed")}
        # As results are read: 95 and 95.0 have different hashes.
        given["server"]["latency_percentile"] = float(self.server.latency_percentile)
        return ScenarioParams(**given.get(scenario, {}))

    def allows(self, system: str, profile: str) -> bool:
        """Return whether a system is measured on a profile, given ``[[restrict]]``."""
        return all(system in entry.systems for entry in self.restrict if profile in entry.profiles)

    def expected(self, system: str, profile: str) -> Outcome:
        """Return the expected outcome of a cell."""
        declared = {(entry.system, entry.profile): entry.outcome for entry in self.expect}
        return declared.get((system, profile), Outcome.OK)

    def jobs_of(self, system: str) -> int:
        """Return the number of jobs of a system's cells: one of a null system that the suite does not name."""
        return 1 if system in NULL_SYSTEMS and system not in self.systems else self.protocol.jobs


def load(path: Path) -> Suite:
    """Read a suite file.

    Raises:
        FileError: missing, no TOML, an unknown or wrong key: one line that names file, key and fix.
    """
    if not path.exists() and (near := did_you_mean(path.stem, config.suite_names())):
        raise FileError(f"{path}: this file does not exist{near}")
    return parse(read_toml(path), path)


def parse(raw: dict[str, Any], path: Path) -> Suite:
    """Check a suite's keys, which come from a file.

    Raises:
        FileError: an unknown or wrong key: one line that names file, key and fix.
    """
    if "name" not in raw and not re.fullmatch(NAME_PATTERN, path.stem):
        raise FileError(f"{path}: {path.stem!r} is not a valid suite name. Set `name` in the file ({_NAME_RULE})")
    suite = validate(Suite, {"name": path.stem, **_united(_attached(raw, path))}, path)
    for system, grid in suite.sweep.items():
        if (points := math.prod(map(len, grid.values()))) > MOST_POINTS:
            fault = f"has {points:,} points; the limit is {MOST_POINTS}. Remove some values"
            raise FileError(f"{path}: key 'sweep.{system}': {fault}")
    if suite.sweep or suite.sizes.documents:
        suite = validate(Suite, _spread(suite), path)
    for mistake in itertools.chain(
        _wrong_variants(suite), _unused_names(suite), _mistakes(suite), _wrong_service(suite)
    ):
        raise FileError(f"{path}: {mistake}")
    return suite


def _attached(raw: dict[str, Any], path: Path) -> dict[str, Any]:
    """Give the suite of a running service its profile, no null system, and a protocol that asks it gently."""
    if raw.get("url") is None:
        return raw
    if raw.get("profiles", [ATTACHED]) != [ATTACHED]:
        told = "name its machine with `instance` in [service]"
        raise FileError(
            f"{path}: key 'profiles': harness cannot limit a service that runs already; remove it, and {told}"
        )
    protocol = raw.get("protocol", {})
    gentle = {**GENTLE, **protocol} if isinstance(protocol, dict) and "name" not in protocol else protocol
    return {**raw, "profiles": [ATTACHED], "overhead": False, "protocol": gentle}


def _wrong_service(suite: Suite) -> Iterator[str]:
    """Yield what is wrong in the keys about a service that runs already."""
    told, limited = suite.service, suite.protocol.max_qps is not None
    if suite.url is None:
        for key, given in (("service", told != RunningService()), ("protocol.max_qps", limited)):
            if given:
                yield f"key '{key}': only a service that runs already has it; add its `url`, or remove this"
        return
    try:
        service_address.parsed(suite.url)
    except ValueError as error:
        yield f"key 'url': it {error}"
    if not limited and suite.scenarios != ("single_stream",):
        many = next(scenario for scenario in suite.scenarios if scenario != "single_stream")
        yield f"key 'scenarios': {many} sends many queries at once; set protocol.max_qps, the most that it may send"
    if told.instance and told.usd_per_hour:
        yield "key 'service': instance and usd_per_hour both give a price; keep one"
    name = told.params.get(service_address.INDEX)
    if told.build and not (isinstance(name, str) and re.fullmatch(OWN_INDEX, name)):
        yield (
            f"key 'service.build': harness builds only into an index of its own, which it removes; set"
            f" service.params.{service_address.INDEX} to a name such as harness-0a1b2c3d"
        )


def _points(system: str, grid: Mapping[str, Sequence[Scalar]]) -> Iterator[tuple[str, dict[str, Scalar]]]:
    """Yield name and parameters of each point of a grid, the first parameter slowest."""
    for values in itertools.product(*grid.values()):
        point = dict(zip(grid, values, strict=True))
        yield "-".join([system, *(_named_value(key, value) for key, value in point.items())]), point


def _named_value(key: str, value: Scalar) -> str:
    """Return a parameter and its value as a part of a name: ``depth10``, ``k1_0.9``, ``backend_torch``."""
    text = str(value).lower()
    joined = key[-1:].isalpha() and text[:1].isdigit()
    return f"{key.lower()}{'' if joined else '_'}{text}"


def _spread(suite: Suite) -> dict[str, Any]:
    """Return the suite's keys, with each swept system as its variants, and each dataset at all sizes.

    A dataset that names its size stays.
    """
    variants = {system: [name for name, _ in _points(system, grid)] for system, grid in suite.sweep.items()}

    def at_sizes(name: str) -> list[str]:
        sizes = () if split_size(name)[1] else suite.sizes.documents
        return [sized_name(name, documents) for documents in sizes] or [name]

    raw = suite.model_dump(mode="json")
    for part in (raw, *raw["group"], *raw["restrict"]):
        part["systems"] = [variant for name in part["systems"] for variant in variants.get(name, [name])]
    for part in (raw, *raw["group"]):
        part["datasets"] = list(dict.fromkeys(size for name in part["datasets"] for size in at_sizes(name)))
    raw["languages"] = {size: code for name, code in raw["languages"].items() for size in at_sizes(name)}
    raw["expect"] = [
        {**entry, "system": name}
        for entry in raw["expect"]
        for name in variants.get(entry["system"], [entry["system"]])
    ]
    return raw | {key: _swept_pairs(raw[key], variants) for key in ("firstp", "exact")}


def _swept_pairs(named: Mapping[str, str], variants: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Give each variant the partner of the same parameters, else the one named; a partner among them needs none."""
    pairs = {}
    for system, first in named.items():
        for name in variants.get(system, [system]):
            same = f"{first}{name.removeprefix(system)}"
            target = same if same in variants.get(first, ()) else first
            if name != target or name == system:
                pairs[name] = target
    return pairs


def _united(raw: dict[str, Any]) -> dict[str, Any]:
    """Give groups the suite's profiles, and the suite the names of its groups; leave wrong types to the checks."""
    groups = raw.get("group")
    if not groups or not isinstance(groups, list) or not all(isinstance(group, dict) for group in groups):
        return raw
    groups = [{**({"profiles": raw["profiles"]} if "profiles" in raw else {}), **group} for group in groups]
    united = {}
    for key in CellGroup.model_fields:
        lists = [part[key] for part in (raw, *groups) if key in part]
        if all(isinstance(names, list) and all(isinstance(name, str) for name in names) for names in lists):
            united[key] = list(dict.fromkeys(itertools.chain.from_iterable(lists)))
    return {**raw, **united, "group": groups}


def _unused_names(suite: Suite) -> Iterator[str]:
    """Yield each name that no cell uses, with its key."""
    for key in CellGroup.model_fields if suite.group else ():
        held = {name for group in suite.group for name in getattr(group, key)}
        for name in getattr(suite, key):
            if name not in held:
                yield f"key '{key}': {name!r} is in no [[group]]; name it in one"
    shipped = instances.hardware_profiles()
    for name in suite.hardware:
        if name in shipped:
            yield f"key 'hardware.{name}': harness has a profile of this name; choose another"
        if name not in (*suite.profiles, suite.build_profile):
            yield f"key 'hardware.{name}': nothing uses it; name it in `profiles`"


def _wrong_variants(suite: Suite) -> Iterator[str]:
    """Yield each sweep of a missing system, and each variant with an invalid name."""
    for name, point in suite.variants.items():
        system = point.system
        if not re.fullmatch(NAME_PATTERN, name):
            yield f"key 'sweep.{system}': {name!r} is not a valid name ({_NAME_RULE})"
        elif name not in suite.systems:
            yield f"key 'sweep.{system}': {system!r} is not in this suite{did_you_mean(system, suite.systems)}"


def _wrong_groups(suite: Suite) -> Iterator[str]:
    """Yield each curve and model with the name of a system, and each system of two curves or two models."""
    points = {name: f"sweep.{point.system}" for name, point in suite.variants.items()}
    for kind, groups, held in (("curve", suite.curve, points), ("seeds", suite.seeds, {})):
        for name, systems in groups.items():
            key = f"{kind}.{name}"
            if name in (*suite.systems, *suite.sweep):
                yield f"key '{key}': a system of this suite has this name; choose another"
            for system in systems:
                if system in held:
                    yield f"key '{key}': {system} is in '{held[system]}' already; remove it from one of them"
                held[system] = key


def _wrong_versions(suite: Suite) -> Iterator[str]:
    for name, builder in suite.same_index.items():
        if base_system(name) != base_system(builder):
            yield f"key 'same_index': {name} and {builder} are not versions of one system; each builds its own index"
        elif builder in suite.same_index:
            yield f"key 'same_index': {builder} builds no index; name the version that builds it"


def _mistakes(suite: Suite) -> Iterator[str]:
    """Yield each contradiction between the keys of a suite, with its key."""
    names: dict[str, tuple[Iterable[str], tuple[str, ...]]] = {}
    names["languages"] = (map(dataset_name, suite.languages), tuple(map(dataset_name, suite.datasets)))
    names["ec2.instances"] = (suite.ec2.instances, (*suite.profiles, *filter(None, (suite.build_profile,))))
    names["firstp"] = ((*suite.firstp, *suite.firstp.values()), (*suite.systems, *suite.seeds))
    names["exact"] = ((*suite.exact, *suite.exact.values()), suite.systems)
    names["same_index"] = ((*suite.same_index, *suite.same_index.values()), suite.systems)
    names |= {f"curve.{name}": (systems, suite.systems) for name, systems in suite.curve.items()}
    names |= {f"seeds.{name}": (systems, suite.systems) for name, systems in suite.seeds.items()}
    for index, restriction in enumerate(suite.restrict):
        names[f"restrict.{index}.profiles"] = (restriction.profiles, suite.profiles)
        names[f"restrict.{index}.systems"] = (restriction.systems, suite.systems)
    names["expect.system"] = ((entry.system for entry in suite.expect), suite.systems)
    names["expect.profile"] = ((entry.profile for entry in suite.expect), suite.profiles)
    for key, (named, declared) in names.items():
        for name in named:
            if name not in declared:
                yield f"key '{key}': {quoted_name(name)} is not in this suite{nearest_or_known(name, declared)}"
    yield from _wrong_versions(suite)
    yield from _wrong_groups(suite)
    if "mixed" in suite.scenarios and suite.url is not None:
        yield "key 'scenarios': mixed deletes documents, and the service at `url` is not harness's own; take another"
    if "mixed" in suite.scenarios and suite.protocol.trials_a_job > 1:
        yield (
            f"key 'scenarios': mixed needs a fresh process for each trial; {suite.protocol.name} has one for all."
            " Take interleaved, or set protocol.trials = 1"
        )
    restricted = Counter(profile for restriction in suite.restrict for profile in restriction.profiles)
    for profile in (name for name, count in restricted.items() if count > 1):
        yield f"key 'restrict': {profile} comes {restricted[profile]} times; name all its systems in one [[restrict]]"
    measured = {cell.system for cell in suite.cells()}
    for system in suite.systems:
        if system not in measured:
            yield (
                f"key 'restrict': no profile is left for {system}, so it would never be measured; remove it from"
                " `systems`, or add it to a [[restrict]]"
            )
    expected = Counter((entry.system, entry.profile) for entry in suite.expect)
    for (system, profile), count in expected.items():
        if count > 1:
            yield f"key 'expect': {system} on {profile} comes {count} times; keep one"
        if not suite.allows(system, profile):
            yield f"key 'expect': a [[restrict]] removes {system} on {profile}; remove one of the two"
