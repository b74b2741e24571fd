"""The index of a reranker: its documents as token ids of the system's own tokeniser, in one mapped file."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy
from encoder.tokens import Tokens
from index_files import doc_ids

from harness.driver.adapter import Corpus, Document

_TOKENS, _ENDS = "tokens.bin", "tokens-ends.npy"
_BATCH_DOCUMENTS = 256


def write(
    corpus: Corpus,
    folder: Path,
    tokens: Tokens,
    text_of: Callable[[Document], str],
    max_tokens: int,
    progress: Callable[[int], None],
) -> int:
    """Write the token ids of all documents, each cut to ``max_tokens``; return the number of documents.

    Raises:
        ValueError: the corpus is empty.
    """
    kind = token_type(tokens)
    ends: list[Any] = []
    ids: list[str] = []
    end = 0
    with (folder / _TOKENS).open("wb") as target:
        for documents in _batches(corpus):
            encoded = tokens.many_ids([text_of(document) for document in documents], max_tokens)
            lengths = numpy.fromiter(map(len, encoded), dtype=numpy.int64, count=len(encoded))
            target.write(numpy.concatenate([numpy.array(each, dtype=kind) for each in encoded]).tobytes())
            ends.append(end + numpy.cumsum(lengths))
            end = int(ends[-1][-1])
            ids += [document.doc_id for document in documents]
            progress(len(ids))
    if not ids:
        raise ValueError("the corpus is empty")
    numpy.save(folder / _ENDS, numpy.concatenate(ends))
    doc_ids.write(folder, ids)
    return len(ids)


class TokenIds:
    """The stored documents: ``store(ids)`` are their token ids, as arrays over the mapped file.

    Raises:
        ValueError: a file is missing or damaged.
    """

    def __init__(self, folder: Path, tokens: Tokens) -> None:
        self.ids = doc_ids.Ids(folder)
        try:
            self._ends: Any = numpy.load(folder / _ENDS, mmap_mode="r")
            path, kind = folder / _TOKENS, token_type(tokens)
            # An empty file cannot be mapped, and an index is read-only.
            self._tokens: Any = numpy.memmap(path, kind, "r") if path.stat().st_size else numpy.zeros(0, kind)
        except (OSError, ValueError) as error:
            raise ValueError(f"the index is damaged: {_TOKENS} and {_ENDS} cannot be read") from error
        if len(self._ends) != len(self.ids) or int(self._ends[-1]) != len(self._tokens):
            raise ValueError(f"the index is damaged: {_TOKENS} has {len(self._tokens)} tokens, not {self._ends[-1]}")

    def __call__(self, wanted: Sequence[str]) -> list[Any]:
        """Read the token ids of documents.

        Raises:
            ValueError: one is not in the index.
        """
        found = []
        for row in self.ids.rows(wanted).tolist():
            start = int(self._ends[row - 1]) if row else 0
            # Copied here, so that reading from disk is in the stage that fetches.
            found.append(numpy.array(self._tokens[start : int(self._ends[row])], dtype=numpy.int64))
        return found


def token_type(tokens: Tokens) -> str:
    """Return numpy's name of the smallest type that holds all token ids."""
    return "<u2" if max(tokens.tokenizer.get_vocab(with_added_tokens=True).values()) < 1 << 16 else "<u4"


def tokeniser_sha256(tokens: Tokens) -> str:
    """Hash of the tokeniser as it is applied."""
    tokens.tokenizer.no_padding()
    tokens.tokenizer.no_truncation()
    return hashlib.sha256(tokens.tokenizer.to_str().encode("utf-8", "surrogatepass")).hexdigest()


def _batches(corpus: Corpus) -> Iterable[list[Document]]:
    remaining = iter(corpus)
    while documents := list(islice(remaining, _BATCH_DOCUMENTS)):
        yield documents
