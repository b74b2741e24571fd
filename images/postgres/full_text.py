"""What full text needs of PostgreSQL: its parameters, and the statements that build and ask an index."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import parameter_names

from harness.driver.records import Scalar

# PostgreSQL's own configurations: a stemmer and a list of stop words each.
LANGUAGES = {
    "en": "english",
    "da": "danish",
    "de": "german",
    "es": "spanish",
    "fi": "finnish",
    "fr": "french",
    "hu": "hungarian",
    "it": "italian",
    "nl": "dutch",
    "no": "norwegian",
    "pt": "portuguese",
    "ru": "russian",
    "sv": "swedish",
    "tr": "turkish",
}
RANKS = ("ts_rank", "ts_rank_cd")
_PARAMS = ("language", "rank", "normalization", "connections")
_MOST_FLAGS = 63  # all of PostgreSQL's flags of normalization
# A word in quotes, as a tsquery's text has it.
_QUOTED = r"""'''' || replace(replace(lexeme, '\', '\\'), '''', '''''') || ''''"""


@dataclass(frozen=True)
class FullText:
    """A configuration of PostgreSQL's text search, and how it ranks: names of this module and a number."""

    configuration: str
    rank: str
    normalization: int

    @classmethod
    def of(cls, params: Mapping[str, Scalar]) -> FullText:
        """Read the parameters ``language`` (``en`` where absent), ``rank`` and ``normalization``.

        Raises:
            ValueError: one is unknown or wrong.
        """
        parameter_names.check(params, _PARAMS, "this engine")
        language, rank, normalization = str(params.get("language", "en")), str(params["rank"]), params["normalization"]
        if language not in LANGUAGES:
            raise ValueError(f"language is {language!r}, must be one of {', '.join(sorted(LANGUAGES))}")
        if rank not in RANKS:
            raise ValueError(f"rank is {rank!r}, must be one of {', '.join(RANKS)}")
        if type(normalization) is not int or not 0 <= normalization <= _MOST_FLAGS:
            raise ValueError(f"normalization is {normalization!r}, must be a whole number from 0 to {_MOST_FLAGS}")
        return cls(LANGUAGES[language], rank, normalization)

    @property
    def tables(self) -> bytes:
        """The statements that make the tables, and the function from a query's text to any of its words.

        ``websearch_to_tsquery`` would ask for all words, which few documents have.
        """
        return f"""
            CREATE TABLE documents (
                place integer NOT NULL, id text NOT NULL, words tsvector NOT NULL, fields jsonb NOT NULL
            );
            CREATE TEMPORARY TABLE batch (place integer, id text, content text, fields jsonb);
            CREATE TABLE built_with AS SELECT '{self.configuration}'::text AS configuration;
            CREATE FUNCTION any_of(query text) RETURNS tsquery LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
                SELECT coalesce(string_agg({_QUOTED}, ' | '), '')::tsquery
                FROM unnest(to_tsvector('pg_catalog.{self.configuration}', query))
            $$
        """.encode()  # noqa: S608 # see the class

    @property
    def insert(self) -> bytes:
        """The statement that makes documents of a batch."""
        words = f"to_tsvector('pg_catalog.{self.configuration}', content)"
        return f"INSERT INTO documents SELECT place, id, {words}, fields FROM batch ORDER BY place".encode()  # noqa: S608 # see the class

    @property
    def update(self) -> bytes:
        """The statement that inserts or replaces one document: takes its place, its id, its text and its fields."""
        words = f"to_tsvector('pg_catalog.{self.configuration}', %s)"
        changed = "place = excluded.place, words = excluded.words, fields = excluded.fields"
        row = f"INSERT INTO documents (place, id, words, fields) VALUES (%s, %s, {words}, %s::jsonb)"  # noqa: S608 # see the class
        return f"{row} ON CONFLICT (id) DO UPDATE SET {changed} RETURNING id".encode()

    @property
    def search(self) -> bytes:
        """The statement that ranks: takes the query's text twice and k.

        The score is a real number of 32 bits; of equal scores the earlier document is first.
        """
        return self._search("")

    @property
    def search_filtered(self) -> bytes:
        """The statement that ranks documents with some fields: takes the query's text twice, the fields and k."""
        return self._search("AND fields @> %s::jsonb ")

    def _search(self, condition: str) -> bytes:
        score = f"{self.rank}(words, any_of(%s), {self.normalization})"
        asked = f"WHERE words @@ any_of(%s) {condition}ORDER BY score DESC, place LIMIT %s"
        return f"SELECT id, {score} AS score FROM documents {asked}".encode()  # noqa: S608 # see the class
