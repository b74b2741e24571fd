"""Facts about an instance type from AWS's price list, as a row of ``instances/aws.csv``.

The list does not say how many cores a type has, and of GPUs and other cards neither maker nor name.  A type with such a
card is therefore taken only where another size of its family is known already, which names the card.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from harness.config import CsvRow

# "2 x 900 NVMe SSD", "1 x 50 GB NVMe SSD".  Old entries give some sizes in TB ("1 x 1.9 NVMe SSD"): those do not match.
_NVME = re.compile(r"(\d+) x (\d{2,}) ?(?:GB )?NVMe SSD")
_CARDS = ("gpu", "asic", "fpga", "media accelerator", "machine learning")
_BURSTABLE = re.compile(r"t\d+[a-z]*|.*-flex")


class NoFacts(Exception):
    """A type about which the list says too little; the text says what is missing."""


def facts(attributes: dict[str, str], source: str, known: Iterable[CsvRow]) -> CsvRow:
    """Return the row of one type.

    Args:
        attributes: ``attributes`` of a product.
        source: where they come from.
        known: the rows of all known types.

    Raises:
        NoFacts: something that must be known is not said.
    """
    name = attributes["instanceType"]
    family, _, size = name.partition(".")
    return {
        "provider": "aws",
        "instance_type": name,
        "vcpus": _whole(attributes, "vcpu"),
        "physical_cores": "",
        "memory_gib": _memory(attributes),
        "architecture": _architecture(attributes),
        **_cards(attributes, [row for row in known if row["instance_type"].partition(".")[0] == family]),
        "local_nvme_gb": _nvme(attributes.get("storage", "")),
        "burstable": str(_BURSTABLE.fullmatch(family) is not None).lower(),
        "bare_metal": str(size.startswith("metal")).lower(),
        "current_generation": {"Yes": "true", "No": "false"}.get(attributes.get("currentGeneration", ""), ""),
        "facts_of": "",
        "gone_by": "",
        "source": source,
    }


def _whole(attributes: dict[str, str], name: str) -> str:
    value = attributes.get(name, "")
    if not re.fullmatch("[0-9]{1,6}", value):
        raise NoFacts(f"its {name} is {value!r}")
    return value


def _memory(attributes: dict[str, str]) -> str:
    """Return ``1952`` for ``1,952 GiB``."""
    match = re.fullmatch(r"([0-9,]+(?:\.[0-9]+)?) GiB", attributes.get("memory", ""))
    if match is None:
        raise NoFacts(f"its memory is {attributes.get('memory', '')!r}")
    return match[1].replace(",", "")


def _architecture(attributes: dict[str, str]) -> str:
    """Return the architecture by the processor's name: the list calls Graviton ``64-bit`` like all others."""
    processor = attributes.get("physicalProcessor", "")
    if "Graviton" in processor:
        return "arm64"
    if re.search("Intel|AMD", processor):
        return "x86_64"
    raise NoFacts(f"its processor is {processor!r}")


def _nvme(storage: str) -> str:
    """Return the GB of local NVMe disk; empty where the text is not understood."""
    match = _NVME.fullmatch(storage)
    if match:
        return str(int(match[1]) * int(match[2]))
    return "0" if storage == "EBS only" else ""


def _cards(attributes: dict[str, str], family: list[CsvRow]) -> CsvRow:
    """Return the columns on GPUs and other cards.  ``family``: the rows of other sizes."""
    card = ("gpu_name", "gpu_manufacturer", "gpu_memory_mib_each")
    none = {"gpu_count": "0", **dict.fromkeys(card, ""), "accelerator_count": "0", "accelerator_name": ""}
    count = attributes.get("gpu", "NA")
    kind = attributes.get("instanceFamily", "").lower()
    if count in ("NA", "0", "") and not any(word in kind for word in _CARDS):
        return none
    same = {tuple(row[column] for column in card) for row in family}
    if not re.fullmatch("[1-9][0-9]?", count) or len(same) != 1 or ("", "", "") in same:
        raise NoFacts(f"it has cards ({attributes.get('instanceFamily')}) that the price list does not name")
    return {**none, "gpu_count": count, **dict(zip(card, same.pop(), strict=True))}
