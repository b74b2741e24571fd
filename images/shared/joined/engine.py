"""The part that all engines of two systems share: their index, their processes and what they say of themselves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from harness.driver.adapter import Adapter, Corpus
from harness.driver.records import Envelope, Scalar
from joined import component

_VERSION = 1  # of what lies in an index; a change refuses older ones


class Joined(Adapter):
    """Two systems, each in its own process with the whole envelope; only one works at a time.

    ``own`` are the parameters of the joining engine itself; those of the systems stand under ``<system>.<name>``.
    """

    engine = ""  # its name, which the index has too

    def __init__(self, params: dict[str, Scalar], envelope: Envelope, assets: Path) -> None:
        super().__init__(params, envelope, assets)
        systems = component.read_components()
        self.own, theirs = _divided(params, [each.name for each in systems])
        self.components = [
            component.Component(each, theirs[each.name], envelope, assets, last=systems[-1]) for each in systems
        ]

    def build(self, corpus: Corpus, index_dir: Path, progress: Callable[[int], None]) -> None:
        """Write which systems are joined; harness lays the index of each into the folder of its name."""
        facts = {"engine": self.engine, "version": _VERSION, "systems": self._names()}
        (index_dir / self._facts_file).write_text(json.dumps(facts), encoding="utf-8")
        progress(len(corpus))

    def load(self, index_dir: Path) -> None:
        """Load both systems, one after the other.

        Raises:
            ValueError: the index is of other systems, another order, engine or version.
        """
        try:
            found = json.loads((index_dir / self._facts_file).read_text(encoding="utf-8"))
            made_by, systems = (found["engine"], found["version"]), " and ".join(found["systems"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"the index has no readable {self._facts_file}: not made by this engine, or damaged; build it again"
            ) from error
        if made_by != (self.engine, _VERSION):
            raise ValueError(
                f"the index is of engine {made_by[0]!r}, version {made_by[1]!r}; this is {self.engine!r}, version"
                f" {_VERSION}: build it again"
            )
        if found["systems"] != self._names():
            raise ValueError(f"the index is of {systems}, not of {' and '.join(self._names())}; build it again")
        for each in self.components:
            with each.named():
                each.load(index_dir / each.name)

    def threads(self) -> dict[str, int]:
        """Return each system's threads as ``<system>.<pool>``, not added up because one works at a time."""
        return {f"{each.name}.{pool}": count for each in self.components for pool, count in each.threads().items()}

    def libraries(self) -> dict[str, str]:
        """Return each system's libraries as ``<system>.<library>``."""
        return {f"{each.name}.{name}": text for each in self.components for name, text in each.libraries().items()}

    def device(self) -> str:
        """Return the device of both systems, or of each if they differ."""
        devices = {each.name: each.device() for each in self.components}
        if len(set(devices.values())) == 1:
            return next(iter(devices.values()))
        return ", ".join(f"{name}: {device}" for name, device in devices.items())

    def close(self) -> None:
        """Close both."""
        for each in self.components:
            with each.named():
                each.close()

    @property
    def _facts_file(self) -> str:
        return f"{self.engine}.json"

    def _names(self) -> list[str]:
        return [each.name for each in self.components]


def _divided(params: dict[str, Scalar], systems: list[str]) -> tuple[dict[str, Scalar], dict[str, dict[str, Scalar]]]:
    """Divide the parameters into the joining engine's own and those of each system."""
    own: dict[str, Scalar] = {}
    theirs: dict[str, dict[str, Scalar]] = {name: {} for name in systems}
    for key, value in params.items():
        # The longest: a system's name may begin with another's and a dot.
        owner = max((name for name in systems if key.startswith(f"{name}.")), key=len, default=None)
        if owner is None:
            own[key] = value
        else:
            theirs[owner][key.removeprefix(f"{owner}.")] = value
    return own, theirs
