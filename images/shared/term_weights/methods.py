"""Methods of learned sparse retrieval: they turn documents into the lines that engines index."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import parameter_names

from harness.driver.adapter import Document
from harness.driver.records import Scalar

# One document as Anserini reads it: "id", and "vector" (weights of terms) or "contents" (text).
Line = dict[str, Any]

_ALL = ("method", "batch_size", "shard_documents")
_HEADS = ("head", "document_head", "query_head")
_QUERIES = ("query_model", "query_tokens", "query_prefix", "query_quantisation", "backend", *_HEADS)
_BM25 = ("k1", "b")

# What documents depend on beside the weights; an index made under other values answers nonsense.
_ENCODED = ("model", "document_model", "document_backend", "document_tokens", "document_prefix")
_EXPANDED = ("expansion_model", "expansions", "top_k", "query_length", "document_length", "seed", "expansion_batch")


class Method(NamedTuple):
    """A method's facts, known before anything is loaded.

    Attributes:
        impact: whether the index holds weights of terms (else text, ranked by BM25).
        head: of its encoders, see ``encoder.heads``; empty where it has none.
        shaping: parameters that documents depend on.
        others: further parameters that it reads, beside those of every method.
    """

    impact: bool
    head: str
    shaping: tuple[str, ...]
    others: tuple[str, ...]


METHODS = {
    "splade": Method(True, "splade", (*_ENCODED, "quantisation"), _QUERIES),
    "unicoil": Method(True, "term_weight", (*_ENCODED, "quantisation", "expansion_tokens", *_EXPANDED), _QUERIES),
    "deepct": Method(False, "term_weight", (*_ENCODED, "scale", "language"), (*_HEADS, *_BM25)),
    "doct5query": Method(False, "", (*_EXPANDED, "language"), _BM25),
}


def check(params: dict[str, Scalar], own: Sequence[str], *, texts: bool = False) -> Method:
    """Return the method that the parameters name, and refuse a parameter that nothing reads.

    Args:
        own: parameters of the engine itself.
        texts: whether the engine ranks texts by BM25 too.

    Raises:
        ValueError: there is no such method, or the parameters do not go with it.
    """
    method = named(params, texts=texts)
    parameter_names.check(params, (*_ALL, *own, *method.shaping, *method.others), f"the method {params['method']}")
    return method


def named(params: dict[str, Scalar], *, texts: bool) -> Method:
    """Return the method that the parameters name; other parameters than the method's may be among them.

    Raises:
        ValueError: there is no such method, or a value does not go with it.
    """
    name = str(params.get("method"))
    known = [each for each, method in METHODS.items() if method.impact or texts]
    if name not in known:
        raise ValueError(f"method is {name!r}, must be one of {', '.join(known)}")
    method = METHODS[name]
    if method.head and params.get("head") != method.head:
        raise ValueError(f"head is {params.get('head')!r}; the method {name} reads the head {method.head!r}")
    for key in ("quantisation", "scale", "query_quantisation"):
        if (key in method.shaping or key in params) and not float(params.get(key, 0)) > 0:
            raise ValueError(f"{key} is {params.get(key)!r}, must be a number above 0")
    if method.head and not document_model(params):
        raise ValueError(f"the method {name} encodes documents: name document_model, or model")
    if name == "doct5query" and not params.get("expansion_model"):
        raise ValueError("the method doct5query needs expansion_model, the folder of a T5 among the assets")
    return method


def document_model(params: dict[str, Scalar]) -> str:
    """Folder of the encoder of documents; empty where there is none."""
    return str(params.get("document_model", params.get("model", "")))


def check_vocabularies(place: Path, params: dict[str, Scalar]) -> None:
    """Refuse encoders whose terms are not the same: their texts would meet by chance alone.

    Raises:
        ValueError: the vocabularies of the two sides differ.
    """
    folders = {document_model(params), str(params.get("query_model", params.get("model", "")))}
    read = [
        json.loads((place / each / "tokenizer.json").read_text(encoding="utf-8")) for each in sorted(folders - {""})
    ]
    if len(read) == 2 and read[0]["model"]["vocab"] != read[1]["model"]["vocab"]:
        raise ValueError(
            f"{' and '.join(sorted(folders))}: the encoders of documents and of queries have different vocabularies,"
            " so their terms cannot meet; take two that belong together"
        )


def writer(params: dict[str, Scalar], assets: Path, threads: int, device: str) -> Writer:
    """Return the writer of a method's lines, with its models loaded."""
    kinds = {"splade": Splade, "unicoil": Unicoil, "deepct": DeepCt, "doct5query": DocT5Query}
    return kinds[str(params["method"])](params, assets, threads, device)


class Writer(ABC):
    """Turns documents into lines.

    Args:
        params: the system's.
        assets: folder of the checkpoints.
        threads: for all libraries.
        device: ``cpu`` or ``cuda``.
    """

    whole = False  # True if a text has weights over the whole vocabulary

    def __init__(self, params: dict[str, Scalar], assets: Path, threads: int, device: str) -> None:
        self.params = params
        self._threads, self._device, self._assets = threads, device, assets
        self.model: Any = self._encoder()
        self._expander: Any = self._expand_with() if params.get("expansion_model") else None

    def lines(self, documents: Sequence[Document], progress: Callable[[int], None]) -> list[Line]:
        """Yield one line a document, in order; report the number done to ``progress``."""
        texts = [f"{each.title} {each.text}" if each.title else each.text for each in documents]
        found: list[Line] = [{} for _ in documents]
        made = self._lines(texts, [document.doc_id for document in documents])
        for done, (number, line) in enumerate(made, 1):
            found[number] = {"id": documents[number].doc_id, **line}
            progress(done)
        return found

    @cached_property
    def names(self) -> list[str]:
        """Names of the terms, by token id; see ``term_weights.terms``."""
        from term_weights import terms

        # Weights over the whole vocabulary may have more rows than the tokeniser has tokens.
        tokenizer = self.model.tokenizer
        return terms.names(terms.vocabulary(tokenizer, self.model.dims if self.whole else tokenizer.get_vocab_size()))

    def libraries(self) -> dict[str, str]:
        """Versions of what encodes and writes."""
        from importlib.metadata import version

        known: dict[str, str] = dict(self.model.libraries()) if self.model else {}
        if self._expander:
            known |= {name: version(name) for name in ("torch", "transformers", "tokenizers")}
        return known

    @abstractmethod
    def _lines(self, texts: list[str], ids: list[str]) -> Iterator[tuple[int, Line]]:
        """Numbers of texts and their lines, in any order."""

    def _batches(self, texts: list[str]) -> Any:
        size = int(self.params["batch_size"])
        return self.model.batches(texts, int(self.params["document_tokens"]), size)

    def _encoder(self) -> Any:
        from encoder.model import Model
        from encoder.roles import role

        found = role("document", dict(self.params))
        if found is None:
            return None
        folder = self._assets / found.folder
        return Model.load(folder, found.head, found.backend, self._threads, self._device, found.params)

    def _expand_with(self) -> Any:
        from term_weights.expansion import Expander

        folder = self._assets / str(self.params["expansion_model"])
        return Expander(folder, self.params, self._threads, self._device)

    def _expansions(self, texts: list[str], ids: list[str]) -> Iterator[tuple[list[int], list[str]]]:
        """Yield batches of texts of similar length: their numbers, and all queries of each as one text."""
        order = sorted(range(len(texts)), key=lambda number: -len(texts[number]))
        for start in range(0, len(order), self._expander.batch):
            numbers = order[start : start + self._expander.batch]
            queries = self._expander([texts[number] for number in numbers], ids[numbers[0]])
            yield numbers, [" ".join(each) for each in queries]


class Splade(Writer):
    """Weights over the whole vocabulary, rounded to impacts."""

    whole = True

    def _lines(self, texts: list[str], ids: list[str]) -> Iterator[tuple[int, Line]]:  # noqa: ARG002
        from term_weights import terms

        for numbers, batch in self._batches(texts):
            for number, row in zip(numbers, self.model.run(batch), strict=True):
                kept, impacts = terms.quantised(row, float(self.params["quantisation"]))
                yield number, {"vector": {self.names[term]: impact for term, impact in zip(kept, impacts, strict=True)}}


class Unicoil(Writer):
    """One weight a term of the document, the largest of its occurrences; of expanded documents, if a T5 is named.

    Expanded as the authors do: the document's tokens, and behind them those of the queries that it lacks.
    """

    def _lines(self, texts: list[str], ids: list[str]) -> Iterator[tuple[int, Line]]:
        from term_weights import terms

        tokenizer = self.model.tokenizer
        scale, left_out = float(self.params["quantisation"]), {tokenizer.token_to_id("[CLS]")}
        batches = self._expanded(texts, ids) if self._expander else self._batches(texts)
        for numbers, batch in batches:
            weights = self.model.run(batch)
            for row, number in enumerate(numbers):
                length = int(batch.mask[row].sum())
                found = terms.by_term(
                    batch.ids[row, :length].tolist(), weights[row, :length].tolist(), left_out=left_out, add=False
                )
                yield number, {"vector": terms.named(found, self.names, scale)}

    def _expanded(self, texts: list[str], ids: list[str]) -> Iterator[tuple[list[int], Any]]:
        tokenizer, tokens = self.model.tokenizer, self.model.tokens
        most, extra = int(self.params["document_tokens"]), int(self.params["expansion_tokens"])
        first, last = tokenizer.token_to_id("[CLS]"), tokenizer.token_to_id("[SEP]")
        for numbers, queries in self._expansions(texts, ids):
            encoded = []
            for number, written in zip(numbers, queries, strict=True):
                own, theirs = tokens.ids(texts[number])[: most - extra - 3], tokens.ids(written)[:extra]
                new = [each for each in dict.fromkeys(theirs) if each not in set(own)]
                encoded.append(_Ids([first, *own, last, *new, last]))
            yield numbers, tokens.batch(encoded)


class DeepCt(Writer):
    """The document's words, each as often as its weight says."""

    def _lines(self, texts: list[str], ids: list[str]) -> Iterator[tuple[int, Line]]:  # noqa: ARG002
        from term_weights import terms

        scale = float(self.params["scale"])
        for numbers, batch in self._batches(texts):
            weights = self.model.run(batch)
            for row, number in enumerate(numbers):
                length = int(batch.mask[row].sum())
                tokens = [self.model.tokenizer.id_to_token(each) for each in batch.ids[row, :length].tolist()]
                found = terms.words(tokens, weights[row, :length].tolist(), scale)
                contents = " ".join(word for word, frequency in found.items() for _ in range(frequency))
                yield number, {"contents": contents}


class DocT5Query(Writer):
    """The document, and behind it the queries that a T5 writes for it."""

    def _lines(self, texts: list[str], ids: list[str]) -> Iterator[tuple[int, Line]]:
        for numbers, queries in self._expansions(texts, ids):
            for number, written in zip(numbers, queries, strict=True):
                # Of nothing, a T5 writes something all the same.
                yield number, {"contents": f"{texts[number]} {written}" if texts[number].strip() else ""}


class _Ids(NamedTuple):
    """Token ids as the tokeniser would hand them out."""

    ids: list[int]
    type_ids: tuple[int, ...] = ()
