"""A made-up provider's machines and prices, as files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from harness.pricing import instances, prices
from harness.pricing.prices import CHECKSUMS

# type: vcpus, cores, GiB, architecture, gpus, name, maker, MiB, accelerators, name, NVMe GB, burstable, metal, current, dates.
# Each rule that leaves a type out has one that is cheaper than the right answer.
FACTS = (
    "x,t3.big,8,4,64,x86_64,0,,,,0,,,true,false,true,,,doc",
    "x,m1.metal,8,4,64,x86_64,0,,,,0,,,false,true,true,,,doc",
    "x,small.one,1,1,1.5,arm64,0,,,,0,,,false,false,true,,,doc",
    "x,m1.two,2,1,4,x86_64,0,,,,0,,,false,false,false,,,doc",
    "x,a.tie,2,2,8,arm64,0,,,,0,,,false,false,true,,,doc",
    "x,b.tie,2,2,8,arm64,0,,,,0,,,false,false,true,,,doc",
    "x,c.tie,4,,8,arm64,0,,,,0,,,false,false,,,,doc",
    "x,inf.one,4,2,8,x86_64,0,,,,1,inferentia,,false,false,true,,,doc",
    "x,radeon.one,4,2,16,x86_64,1,radeon,amd,8192,0,,,false,false,true,,,doc",
    "x,part.gpu,4,2,16,x86_64,0,l4,nvidia,2861,0,,,false,false,true,,,doc",
    "x,plain.four,4,2,16,x86_64,0,,,,0,,100,false,false,true,,,doc",
    "x,g.one,4,2,16,x86_64,1,t4,nvidia,16384,0,,125,false,false,true,,,doc",
    "x,g.four,48,24,192,x86_64,4,t4,nvidia,16384,0,,900,false,false,true,,,doc",
)
PRICES = {
    "t3.big": "0.01",
    "m1.metal": "0.01",
    "small.one": "0.02",
    "m1.two": "0.05",
    "c.tie": "0.06",
    "b.tie": "0.06",
    "a.tie": "0.06",
    "inf.one": "0.07",
    "radeon.one": "0.08",
    "part.gpu": "0.09",
    "plain.four": "0.2",
    "g.one": "0.5",
    "g.four": "1.9",
}
DEFAULTS = """
[market]
provider = "x"
region = "here"
term = "on-demand"

[reserve]
memory = "512MiB"
share = 0.015625
"""


def write(root: Path) -> Path:
    """Write the whole folder, with prices of one date."""
    (root / "instances").mkdir(parents=True)
    (root / "prices").mkdir()
    (root / "defaults.toml").write_text(DEFAULTS)
    (root / "instances" / "x.csv").write_text(f"{instances.INSTANCE_HEADER}\n" + "".join(f"{line}\n" for line in FACTS))
    add_prices(root, "x_here_2024-05-01.csv", {"on-demand": PRICES})
    return root


def add_prices(root: Path, name: str, by_term: Mapping[str, Mapping[str, str]]) -> Path:
    """Add a snapshot."""
    provider, region, *_, as_of = name.removesuffix(".csv").split("_")
    lines = [
        f"{provider},{region},{instance_type},{term},{price},{as_of},{as_of} list\n"
        for term, prices_by_type in by_term.items()
        for instance_type, price in prices_by_type.items()
    ]
    path = root / "prices" / name
    path.write_text(f"{prices.PRICE_HEADER}\n{''.join(lines)}")
    seal(path.parent)
    return path


def seal(folder: Path) -> None:
    """Return checksums of all files."""
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(folder.glob("*.csv"))]
    (folder / CHECKSUMS).write_text("".join(sums))
