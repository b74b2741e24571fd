"""What two sets of queries can be compared by: their words, or vectors that are of these very texts."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping

from harness.errors import UsageError
from harness.evaluation.embeddings import Embeddings, sha256_of_texts


def normal(text: str) -> str:
    """A text without case, punctuation, and differences of white space and of Unicode's forms."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    kept = (" " if unicodedata.category(each)[0] in "PZC" else each for each in folded)
    return " ".join("".join(kept).split())


def wordless(queries: Mapping[str, str], whose: str, remedy: str) -> tuple[str, ...]:
    """Those queries without a word in them, which are like no other as long as there are no vectors.

    Args:
        queries: texts by id, at least one.
        whose: queries they are.
        remedy: what to do where none has a word.

    Raises:
        UsageError: none has.
    """
    found = tuple(query for query, text in queries.items() if not normal(text))
    if len(found) == len(queries):
        raise UsageError(f"{whose}: none of {len(found):,} queries has a text, so nothing can be compared; {remedy}")
    return found


def check_texts(found: Embeddings, texts: Mapping[str, str], whose: str) -> str | None:
    """Refuse vectors of other texts than these, as far as it can be known; else the reason why it cannot.

    Args:
        found: vectors of at least these queries.
        texts: by id.
        whose: queries they are.

    Raises:
        UsageError: the vectors are of other texts.
    """
    if not any(texts.values()):
        return f"That the vectors of {whose} are of its queries is not checked: there are no texts of these."
    if found.places.keys() != texts.keys():
        return (
            f"That the vectors of {whose} are of these very texts is not checked: they are of"
            f" {len(found.ids):,} queries, of which {len(texts):,} are asked for."
        )
    # In the order of the file, or as an index has put them.
    orders = (texts, {name: texts[name] for name in found.ids})
    hashes = [sha256_of_texts(each) for each in orders]
    if found.source not in hashes:
        raise UsageError(
            f"the vectors of {whose} are of other texts ({found.source[:12]}) than its queries have ({hashes[0][:12]});"
            f" embed these with harness embed {found.encoder} --texts FILE"
        )
    return None
