"""The suite of `harness attach`, written next to its results, and what a run sends to a service that runs already."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.commands import option
from harness.datasets import dataset_name
from harness.driver.records import MAX_PROBES, Scalar
from harness.errors import UsageError, counted, nearest_or_known
from harness.jobs.command_suite import dataset_from, suite_document, suite_name, write_document
from harness.jobs.inputs import Inputs
from harness.jobs.plan import Planned
from harness.jobs.suite import OWN_INDEX
from harness.launch import service_address
from harness.launch.credentials import Credentials
from harness.launch.images.systems import System

_MOST_NAME = 63
# The kinds of a parameter that is no text: in words, and their parsers.
_KINDS: dict[type, tuple[str, Callable[[str], Scalar]]] = {
    bool: ("true or false", {"true": True, "false": False}.__getitem__),
    int: ("a whole number", lambda text: int(text, 0)),  # also 0x10
    float: ("a number", float),
}


@dataclass(frozen=True)
class AttachSuite:
    """One system as the client of one service, with what the command line says of both; ``None``: not given."""

    url: str
    system: System
    dataset: str
    params: tuple[str, ...] = ()
    queries: int | None = None
    trials: int | None = None
    max_qps: float | None = None
    instance: str | None = None
    usd_per_hour: float | None = None
    build: bool = False

    def write(self, results: Path) -> Path:
        """Write the suite's file into the folder of results; return its path.

        The file of an earlier command with this service, system and dataset gets this command's options, and keeps all
        else.

        Raises:
            UsageError: a parameter is wrong, or the file is another suite by now.
        """
        path = results / f"{self._name(results)}.toml"
        keys = {"url": self.url, "systems": [self.system.name], "datasets": [dataset_from(self.dataset, results)]}
        document = suite_document(path, keys)
        earlier = document.unwrap()
        options = {"sample_size": self.queries, "trials": self.trials, "max_qps": self.max_qps}
        given = {key: value for key, value in options.items() if value is not None}
        document["protocol"] = {**earlier.get("protocol", {"trials": 3}), **given}
        document["service"] = self._service(earlier.get("service", {}))
        if not document["service"]:
            del document["service"]
        write_document(document, path)
        return path

    def _name(self, results: Path) -> str:
        address = service_address.parsed(self.url)
        parts = (dataset_name(dataset_from(self.dataset, results)), self.system.name, f"{address.netloc}{address.path}")
        return suite_name(suite_name("-".join(parts))[:_MOST_NAME])

    def _service(self, earlier: dict[str, Any]) -> dict[str, Any]:
        """Return the table of the service; an index of its own keeps its name."""
        told: dict[str, Any] = {"instance": self.instance, "usd_per_hour": self.usd_per_hour}
        params = self._params()
        if self.build:
            if service_address.INDEX in params:
                raise UsageError(
                    f"--build names its index itself; leave {option('param', service_address.INDEX)} out, or --build"
                )
            known = earlier.get("params", {}).get(service_address.INDEX, "")
            own = known if re.fullmatch(OWN_INDEX, str(known)) else f"harness-{secrets.token_hex(4)}"
            params[service_address.INDEX] = own
            told["build"] = True
        return {key: value for key, value in {**told, "params": params}.items() if value not in (None, {})}

    def _params(self) -> dict[str, Scalar]:
        """Parse the parameters; each has the kind of value that the system's file has."""
        parsed: dict[str, Scalar] = {}
        for given in self.params:
            name, mark, text = given.partition("=")
            if not mark:
                raise UsageError(f"--param {name!r} has no value; write NAME=VALUE")
            if name not in self.system.params:
                hint = nearest_or_known(name, self.system.params, label="it has")
                raise UsageError(f"--param: {self.system.name} has no parameter {name!r}{hint}")
            if name in parsed:
                raise UsageError(f"--param {name} is given twice; give it once")
            parsed[name] = _value(name, text, self.system.params[name])
        return parsed


def _value(name: str, text: str, like: Scalar) -> Scalar:
    """Return a value of the kind of another."""
    if isinstance(like, str):
        return text
    kind, parse = _KINDS[type(like)]
    try:
        return parse(text)
    except (ValueError, KeyError):
        example = f"{name}={str(like).lower()}"
        raise UsageError(f"--param {name}: {text!r} is not {kind}; write it as {example}") from None


def sending(inputs: Inputs, planned: Iterable[Planned]) -> str:
    """Say what a run sends to a service, how fast, and what it writes there; nothing if all jobs are done."""
    suite, jobs = inputs.suite, [job for job in planned if not job.done]
    if not jobs:
        return ""
    url, limit = suite.url or "", suite.protocol.max_qps
    queries = sum(_queries(job) for job in jobs)
    several = any(job.cell.scenario != "single_stream" for job in jobs)
    most = "at most " if several else ""
    how = "several at a time" if several else "one at a time"
    rate = f"at most {limit:g} a second" if limit else "each after the answer to the one before"
    index = suite.service.params.get(service_address.INDEX)
    writes = f"it builds index {index!r} there and removes it" if suite.service.build else "it writes nothing there"
    address = service_address.parsed(url)
    names = Credentials.of_environment().given
    secret = f"; credentials: {' and '.join(names)}" if names else ""
    if names and address.scheme == "http" and not service_address.is_local(url):
        secret += ", which this http:// address sends unencrypted"
    place = f"{address.hostname}{f':{address.port}' if address.port else ''}"
    return f"sends {most}{counted(queries, 'query')} to {place}, {how}, {rate}; {writes}{secret}"


def _queries(job: Planned) -> int:
    """Return the most queries of a job."""
    spec = job.spec
    passes = MAX_PROBES if job.cell.scenario != "single_stream" else spec.trials
    warmup = max(spec.warmup_queries, spec.warmup_cap or 0)
    return warmup + passes * spec.timed_queries + 2 * min(spec.repeats, spec.timed_queries)
