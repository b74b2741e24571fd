"""Readers of suites, systems, engines, hardware, prices and published tables."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness import config
from harness.analysis import published, published_measures
from harness.errors import FileError
from harness.estimate import Estimate
from harness.jobs import suite
from harness.launch.images import catalog, locks, pins, recipes, registry
from harness.launch.images.dockerfile import Dockerfile
from harness.pricing import bill, carbon, instances, prices, serverless, token_prices
from harness.untrusted import read_whole
from tests.fuzz.child import NAMED, Reader
from tests.support.package_index import PackageIndex

_ROOT = Path(__file__).resolve().parents[2]
_SUITES = ("engines-large", "small", "santhanam2023-xortydi")
_ENGINE = "dense"
_PRICES = "prices/aws_us-east-1_2022-10-31.csv"


def _copy(folder: Path, source: str, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(_ROOT / source / name, folder / name)


def _make_suites(folder: Path) -> None:
    _copy(folder, "suites", *(f"{name}.toml" for name in _SUITES))


def _read_suites(folder: Path, _scratch: Path) -> object:
    return [suite.load(folder / f"{name}.toml") for name in _SUITES]


def _make_engine(folder: Path) -> None:
    for engine, system in ((_ENGINE, "minilm"), ("tantivy", "tantivy"), ("fusion", "hybrid-minilm")):
        shutil.copytree(_ROOT / "images" / engine, folder / engine, ignore=shutil.ignore_patterns("systems"))
        _copy(folder, "images", f"{engine}/systems/{system}.toml")


def _read_systems(folder: Path, _scratch: Path) -> object:
    found = catalog.systems(folder)
    minilm = found["minilm"]
    text = (folder / _ENGINE / "systems" / "minilm.toml").read_text(encoding="utf-8")
    return [dict(system) for system in found.values()], pins.with_pins(text, minilm.assets, minilm.file)


def _read_engine_folder(folder: Path, _scratch: Path) -> object:
    system = catalog.systems(folder)["minilm"]
    found = recipes.engine_recipe(system), locks.read(system.lock)
    return found, Dockerfile.of(folder / _ENGINE / "Dockerfile").for_build({"BASE": "base"}).text


def _make_pages(folder: Path) -> None:
    index = PackageIndex({"toy": {"toy-1.0.tar.gz": b"x", "toy-2.0-py3-none-any.whl": b"y"}})
    (folder / "page.json").write_bytes(index.page("toy")[1])
    index.json = False
    (folder / "page.html").write_bytes(index.page("toy")[1])


def _read_pages(folder: Path, _scratch: Path) -> object:
    """Read a page of each kind; one that is damaged is what harness calls an answer of no index."""
    found = []
    for kind in ("json", "html"):
        with suppress(ValueError, OSError):
            content = read_whole(folder / f"page.{kind}", registry.MAX_PAGE_BYTES)
            found.append(registry.listed_files(content, kind))
    return found


def _make_hardware(folder: Path) -> None:
    _copy(folder, "instance_profiles", "hardware.toml", "defaults.toml")


def _read_hardware(folder: Path, _scratch: Path) -> object:
    return instances.hardware_profiles(folder / "hardware.toml"), prices.default_market(folder)


def _make_prices(folder: Path) -> None:
    _copy(folder, "instance_profiles", _PRICES, "prices/SHA256SUMS", "instances/aws.csv", "storage.csv")
    for name in (_PRICES, "instances/aws.csv"):
        lines = (folder / name).read_text(encoding="utf-8").splitlines(keepends=True)
        (folder / name).write_text("".join(lines[:40]), encoding="utf-8")


def _read_prices(folder: Path, _scratch: Path) -> object:
    """Read prices, without the checksum that would refuse every change."""
    file = next(iter(prices.snapshot_files(folder)), None)
    if file is None:
        return None
    content = config.read_shipped(file.path)
    storage = prices.storage_price("aws", "us-east-1", file.as_of, folder)
    return dict(prices._parsed(file, content, instances.facts_files("aws", folder))), storage


def _read_checksums(folder: Path, _scratch: Path) -> object:
    try:
        return prices.read_checked(folder / _PRICES)
    except FileError as error:
        return str(error)


def _make_tokens(folder: Path) -> None:
    _copy(folder, "instance_profiles", "tokens/2026-11-09.toml", "tokens/SHA256SUMS")


def _read_tokens(folder: Path, _scratch: Path) -> object:
    path = folder / "tokens" / "2026-11-09.toml"
    return config.validate(token_prices.TokenSnapshot, config.read_toml(path), path)


def _make_carbon(folder: Path) -> None:
    _copy(folder, "instance_profiles", "carbon/2026-11-29.toml", "carbon/SHA256SUMS")


def _read_carbon(folder: Path, _scratch: Path) -> object:
    path = folder / "carbon" / "2026-11-29.toml"
    return config.validate(carbon.CarbonFactors, config.read_toml(path), path)


def _make_serverless(folder: Path) -> None:
    _copy(folder, "instance_profiles", "serverless/2026-11-29.toml", "serverless/SHA256SUMS")


def _read_serverless(folder: Path, _scratch: Path) -> object:
    path = folder / "serverless" / "2026-11-29.toml"
    found = config.validate(serverless.ServerlessPrices, config.read_toml(path), path)
    load = serverless.Load(cpus=2, memory_bytes=2**32, mean_s=Estimate(0.01))
    return serverless.quotes(found, load, None)


def _make_traffic(folder: Path) -> None:
    numbers = "queries_per_month = 3e6\npeak = 2.5\ndocuments = 8800000\nchanged = 0.05\nbuilds = 1\nmachines = 2\n"
    (folder / "traffic.toml").write_text(f"[traffic]\n{numbers}", encoding="utf-8")


def _read_traffic(folder: Path, _scratch: Path) -> object:
    traffic = bill.read_traffic(folder / "traffic.toml", {"builds": 2.0})
    return bill.bill(bill.Service(capacity_qps=Estimate(100.0), usd_per_hour=0.05), traffic)


def _make_published(folder: Path, name: str) -> None:
    source = _ROOT / "results" / "published" / name
    for path in source.iterdir():
        if path.is_file():
            shutil.copyfile(path, folder / path.name)


def _published(name: str, read: Any, *files: str) -> Reader:
    return Reader(
        f"published {name}", lambda folder: _make_published(folder, name), lambda folder, _: read(folder), files
    )


READERS = (
    Reader("traffic", _make_traffic, _read_traffic, ("traffic.toml",), skips=NAMED, weight=0.3),
    Reader("suites", _make_suites, _read_suites, tuple(f"{name}.toml" for name in _SUITES), skips=NAMED, weight=0.5),
    Reader(
        "systems",
        _make_engine,
        _read_systems,
        (f"{_ENGINE}/engine.toml", f"{_ENGINE}/systems/minilm.toml", "fusion/systems/*.toml"),
        weight=0.5,
    ),
    Reader(
        "engine folders",
        _make_engine,
        _read_engine_folder,
        (f"{_ENGINE}/Dockerfile", f"{_ENGINE}/requirements.lock"),
        weight=0.1,
    ),
    Reader("pages of package indexes", _make_pages, _read_pages, ("page.json", "page.html"), weight=0.2),
    Reader("hardware", _make_hardware, _read_hardware, ("hardware.toml", "defaults.toml"), skips=NAMED),
    Reader("prices", _make_prices, _read_prices, (_PRICES, "instances/aws.csv", "storage.csv"), skips=NAMED),
    Reader("checksums of prices", _make_prices, _read_checksums, ("prices/SHA256SUMS",), skips=NAMED),
    Reader("token prices", _make_tokens, _read_tokens, ("tokens/2026-11-09.toml",), skips=NAMED),
    Reader("carbon factors", _make_carbon, _read_carbon, ("carbon/2026-11-29.toml",), skips=NAMED),
    Reader("serverless prices", _make_serverless, _read_serverless, ("serverless/2026-11-29.toml",), skips=NAMED),
    _published(
        "santhanam2023", published.read, "published.toml", "table1_posthoc.csv", "table3c_accuracy.csv", "errata.csv"
    ),
    _published("boytsov2025", published_measures.read, "published.toml", "table*.csv"),
    _published("arabzadeh2024", published_measures.read, "published.toml", "table*.csv"),
)
