"""Licence and attribution of a dataset."""

from __future__ import annotations

from dataclasses import dataclass

from harness.untrusted import ForeignText


@dataclass(frozen=True)
class Licence:
    """Licence of a dataset's texts (``None``: its folder names none), and whom to name."""

    text: ForeignText | None
    attribution: ForeignText | None = None


MS_MARCO = Licence(
    ForeignText(
        "MS MARCO's terms: for non-commercial research only, without extending any licence. Do not pass the copy on."
    ),
    ForeignText(
        "Payal Bajaj et al.: *MS MARCO: A Human Generated MAchine Reading COmprehension Dataset*, 2016"
        " (arXiv 1611.09268)."
    ),
)

XOR_TYDI = Licence(
    ForeignText("CC BY-SA 4.0"),
    ForeignText("Akari Asai et al.: *XOR QA: Cross-lingual Open-Retrieval Question Answering*, NAACL 2021."),
)
