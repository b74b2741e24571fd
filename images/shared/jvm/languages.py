"""Anserini's analysers by language code."""

from __future__ import annotations

from typing import Any

# What io.anserini.analysis.AnalyzerMap holds (tests compare), less Thai, whose words the Java runtime of the images
# cannot find.  The map is not asked itself: its class starts Java's logging, at each load.
_PACKAGE = "org.apache.lucene.analysis"
ANALYZERS = {
    "ar": f"{_PACKAGE}.ar.ArabicAnalyzer",
    "bn": f"{_PACKAGE}.bn.BengaliAnalyzer",
    "da": f"{_PACKAGE}.da.DanishAnalyzer",
    "de": f"{_PACKAGE}.de.GermanAnalyzer",
    "es": f"{_PACKAGE}.es.SpanishAnalyzer",
    "fa": f"{_PACKAGE}.fa.PersianAnalyzer",
    "fi": f"{_PACKAGE}.fi.FinnishAnalyzer",
    "fr": f"{_PACKAGE}.fr.FrenchAnalyzer",
    "hi": f"{_PACKAGE}.hi.HindiAnalyzer",
    "hu": f"{_PACKAGE}.hu.HungarianAnalyzer",
    "id": f"{_PACKAGE}.id.IndonesianAnalyzer",
    "it": f"{_PACKAGE}.it.ItalianAnalyzer",
    "ja": f"{_PACKAGE}.ja.JapaneseAnalyzer",
    "ko": f"{_PACKAGE}.cjk.CJKAnalyzer",
    "nl": f"{_PACKAGE}.nl.DutchAnalyzer",
    "no": f"{_PACKAGE}.no.NorwegianAnalyzer",
    "pl": f"{_PACKAGE}.morfologik.MorfologikAnalyzer",
    "pt": f"{_PACKAGE}.pt.PortugueseAnalyzer",
    "ru": f"{_PACKAGE}.ru.RussianAnalyzer",
    "sv": f"{_PACKAGE}.sv.SwedishAnalyzer",
    "te": f"{_PACKAGE}.te.TeluguAnalyzer",
    "tr": f"{_PACKAGE}.tr.TurkishAnalyzer",
    "uk": f"{_PACKAGE}.uk.UkrainianMorfologikAnalyzer",
    "zh": f"{_PACKAGE}.cjk.CJKAnalyzer",
}
ENGLISH = "en"


def check(language: str) -> str:
    """Return a language's code after checking it.

    Raises:
        ValueError: Anserini has no analyser for it.
    """
    if language != ENGLISH and language not in ANALYZERS:
        raise ValueError(f"language is {language!r}, must be one of {', '.join(sorted([ENGLISH, *ANALYZERS]))}")
    return language


def index_options(language: str) -> list[str]:
    """Return the options of Anserini's indexer; English is its default."""
    return [] if language == ENGLISH else ["-language", language]


def analyzer(language: str) -> Any:
    """Return the Lucene analyser that the indexer uses for a language; needs the JVM."""
    from jnius import autoclass

    if language == ENGLISH:
        return autoclass("io.anserini.analysis.DefaultEnglishAnalyzer").newDefaultInstance()
    return autoclass(ANALYZERS[language])()
