"""Systems as a list of one line each, as everything about one, and as rows for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rich.cells import cell_len

from harness.commands import command
from harness.launch.images.asset import Asset
from harness.launch.images.platforms import PLATFORMS
from harness.launch.images.systems import LANGUAGE, System
from harness.report.document import (
    MISSING,
    STAND_IN,
    Escape,
    GridColumn,
    ReportDocument,
    Section,
    Value,
    grid_of,
    lines_of,
)

_UNPINNED = "*"
# Terminals of this width or more show licences.
_WITH_LICENCES = 120
# Rankers of the papers that a reader would look for.
_NOT_BUILT = (
    "Neural Model 1 (Boytsov & Kolter 2021) is not built: code withheld, a patent filed",
    "CITADEL (Li et al. 2022) is not built: its weights are on no hub",
)
# Between two columns.
_GAP = 2


def systems_section(systems: Sequence[System], escape: Escape, width: int | None) -> Section:
    """Return the list of systems, no wider than a terminal of ``width`` columns (``None``: any)."""
    names: tuple[GridColumn[System], ...] = (
        ("system", False, lambda system: system.name + _marks(system)),
        ("engine", False, lambda system: system.engine),
    )
    more: tuple[GridColumn[System], ...] = (("licence", False, lambda system: escape(_licence(system))),)
    more = more if width is None or width >= _WITH_LICENCES else ()
    used = sum(
        _GAP + max(cell_len(header), *(cell_len(cell(system)) for system in systems))
        for header, _, cell in (*names, *more)
    )
    room = None if width is None else width - used
    what: GridColumn[System] = ("what it is", False, lambda system: escape(shortened(str(system.description), room)))
    notes = ["parameters, weights, where it runs: harness systems SYSTEM"]
    if any(system.unpinned for system in systems):
        notes.append(f"{_UNPINNED} no pinned weights: `harness run` pins them at first use")
    if any(system.stand_in for system in systems):
        notes.append(f"{STAND_IN} not the published checkpoint: harness systems SYSTEM says which")
    if len(systems) > 1:
        notes += _NOT_BUILT
    return Section(grids=(grid_of(systems, (*names, what, *more)),), notes=tuple(notes))


def shortened(text: str, room: int | None) -> str:
    """Return as many whole words of a text as fit."""
    if room is None or cell_len(text) <= room:
        return text
    return text[: max(0, room - 4)].rsplit(" ", 1)[0] + " ..."


def system_paragraphs(system: System) -> Iterator[tuple[str, str]]:
    """Yield all that is known about a system: title and text."""
    yield system.name, str(system.description)
    yield "Engine", f"{system.engine}, in {system.engine_dir}"
    if system.version:
        yield "Packages", f"of version {system.version}: {system.lock}"
    if system.components:
        yield "Joins", " and ".join(part.name for part in system.components)
    tables = {
        "Index parameters": system.build_params,
        "Search parameters": system.search_params,
        "With GPUs": system.with_gpus,
    }
    for title, params in tables.items():
        if params:
            yield title, ", ".join(f"{name} = {value}" for name, value in params.items())
    for part in system.parts:
        if part.languages and LANGUAGE not in part.build_params:
            first, *others = part.languages
            yield "Languages", f"the dataset's, else {first}: {', '.join((first, *others))} ({part.name})"
    yield "Runs on", _platforms(system)
    for asset in _assets(system):
        yield "Files", _files(asset)
    if system.unpinned:
        publish = ", ".join(command("pin", name) for name in system.unpinned)
        yield "Not pinned", f"`harness run` pins it at first use, next to its results; to publish a pin: {publish}"
    if system.stand_in:
        yield "Stand-in", str(system.stand_in)
    yield "Declared in", str(system.file)
    yield "Check it", command("conformance", system.name)


def systems_document(systems: Sequence[System]) -> ReportDocument:
    """Return the systems for programs."""

    def whole(system: System) -> dict[str, object]:
        return {
            **{name: get(system) for name, get in _COLUMNS},
            "components": [part.name for part in system.components],
            "languages": list(system.languages),
            "build_params": system.build_params,
            "search_params": system.search_params,
            "with_gpus": system.with_gpus,
            "files": [asset.model_dump() for asset in _assets(system)],
        }

    return ReportDocument(
        sections=lambda escape: (systems_section(systems, escape, None),),
        lines=lambda: lines_of(systems, _COLUMNS),
        content=lambda: {"systems": [whole(system) for system in systems]},
    )


def _marks(system: System) -> str:
    marks = (_UNPINNED if system.unpinned else "", STAND_IN if system.stand_in else "")
    return "".join(f" {mark}" for mark in marks if mark)


def _licence(system: System) -> str:
    licences = (str(asset.licence) for asset in _assets(system))
    return ", ".join(dict.fromkeys("unknown" if each == "NOASSERTION" else each for each in licences)) or MISSING


def _assets(system: System) -> list[Asset]:
    return [asset for part in system.parts for asset in (*part.engine_assets, *part.assets)]


def _platforms(system: System) -> str:
    able = [name for name in PLATFORMS if system.for_platform(name).lacking is None]
    gpus = "with NVIDIA GPUs too" if system.for_job("build", gpus=1).image != system.image else "without GPUs"
    reasons = [reason for name in PLATFORMS if (reason := system.for_platform(name).lacking)]
    return "; ".join((f"{', '.join(able)}, {gpus}", *reasons))


def _files(asset: Asset) -> str:
    source = (
        f"{asset.hub} at {asset.revision or 'no pinned revision'}" if asset.hub else asset.package or "local folder"
    )
    return f"{asset.folder}: {len(asset.names)} from {source}, licence {asset.licence}"


_COLUMNS: tuple[tuple[str, Callable[[System], Value]], ...] = (
    ("system", lambda system: system.name),
    ("engine", lambda system: system.engine),
    ("description", lambda system: system.description),
    ("licence", _licence),
    ("pinned", lambda system: not system.unpinned),
    ("stand_in", lambda system: system.stand_in),
    ("platforms", _platforms),
    ("file", lambda system: str(system.file)),
)
