"""Facts that a dataset's folder states: language, licence and attribution; and the licences of known formats."""

from __future__ import annotations

from pydantic import Field

from harness.config import ConfigModel
from harness.datasets.dataset import Language
from harness.untrusted import ForeignText


class DatasetFacts(ConfigModel):
    """``dataset.toml`` in a dataset's folder."""

    language: Language | None = Field(
        default=None, description="code of the language of documents and queries, e.g. `zh`"
    )
    licence: ForeignText | None = Field(
        default=None, description="licence of the texts; copies that harness generates name it"
    )
    attribution: ForeignText | None = Field(default=None, description="whom to name as the author of the texts")


MS_MARCO = DatasetFacts(
    licence=ForeignText(
        "MS MARCO's terms: for non-commercial research only, without extending any licence. Do not pass the copy on."
    ),
    attribution=ForeignText(
        "Payal Bajaj et al.: *MS MARCO: A Human Generated MAchine Reading COmprehension Dataset*, 2016"
        " (arXiv 1611.09268)."
    ),
)

XOR_TYDI = DatasetFacts(
    licence=ForeignText("CC BY-SA 4.0"),
    attribution=ForeignText(
        "Akari Asai et al.: *XOR QA: Cross-lingual Open-Retrieval Question Answering*, NAACL 2021."
    ),
)
