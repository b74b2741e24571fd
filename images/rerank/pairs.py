"""Pairs of a query and a document as micro-batches: assembled from arrays of token ids, packed by length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
from encoder.config import Config
from encoder.tokens import Batch, PairForm
from parameters import Rule
from windows import SPLITS, Span


@dataclass(frozen=True)
class MicroBatch:
    """All windows of some documents, and the query.

    Attributes:
        batch: token ids, mask and token types, (windows, length).
        documents: numbers of the documents, in the order of their windows.
        pair: index in ``documents`` of each window's document, int64 (windows,).
        query: positions of the query in each window.
        document: positions of the document in each window, at most.
        lengths: tokens of the document in each window, int64 (windows,); 0 for an empty window.
    """

    batch: Batch
    documents: list[int]
    pair: Any
    query: slice
    document: slice
    lengths: Any


@dataclass(frozen=True)
class Layout:
    """The rule by which a query and a document become windows of tokens.

    Args:
        form: the tokeniser's special tokens around a pair.
        pad_id: of the padding token.
        rule: the rule that cuts documents.
        query_tokens: longest query.
        document_tokens: longest document.
        max_tokens: positions of the transformer; a ``first`` window is shortened to fit, as truncation would.
        fixed: every query and document is padded to its longest before it is cut (``pad_windows = s3``).
        batch_tokens: most tokens of a micro-batch, padding included; one document may have more.
        padded: the length that the transformer pads a sequence of some length to.
        alike: a micro-batch holds windows of one padded length alone.
    """

    form: PairForm
    pad_id: int
    rule: Rule
    query_tokens: int
    document_tokens: int
    max_tokens: int
    fixed: bool
    batch_tokens: int
    padded: Callable[[int], int] = int
    alike: bool = False

    def __post_init__(self) -> None:
        room = self.max_tokens - self.form.added - self.query_tokens
        least = 1 if self.rule.split == "first" else min(self.rule.window, self.document_tokens)
        if room < least:
            raise ValueError(
                f"query_tokens {self.query_tokens}, a window of {least} and {self.form.added} special tokens are more"
                f" than the transformer's {self.max_tokens} positions; lower query_tokens or window"
            )

    def spans(self, tokens: int, asked: int) -> list[Span]:
        """Return the windows of a document of ``tokens`` tokens behind a query of ``asked``.

        With ``fixed`` they are those of a document of ``document_tokens`` tokens.
        """
        window = self.rule.window
        if self.rule.split == "first":
            window = min(window, self.max_tokens - self.form.added - asked)
        return SPLITS[self.rule.split](self.document_tokens if self.fixed else tokens, window, self.rule.stride)

    def micro_batches(self, query: Sequence[int] | None, documents: Sequence[Any]) -> list[MicroBatch]:
        """Pack documents of like length together, longest first; a document's windows stay in one micro-batch.

        Args:
            query: token ids, at most ``query_tokens``; ``None`` where documents are encoded apart from it.
            documents: token ids of each, int64.
        """
        asked = self._asked(query)
        spans = [self.spans(len(document), asked) for document in documents]
        widths = [self._width(each, asked) for each in spans]
        order = sorted(range(len(documents)), key=lambda number: (-widths[number], number))
        groups: list[list[int]] = []
        windows = 0
        for number in order:
            windows += len(spans[number])
            first = groups[-1][0] if groups else number
            parted = self.alike and widths[first] != widths[number]
            if not groups or parted or windows * widths[first] > self.batch_tokens:
                groups.append([])
                windows = len(spans[number])
            groups[-1].append(number)
        return [self._assemble(query, documents, spans, widths[group[0]], group) for group in groups]

    def apart(self, tokens: Sequence[int]) -> MicroBatch:
        """Return the query as a micro-batch of its own, in windows' form but all of the first text's type."""
        alone = [(0, self.query_tokens if self.fixed else len(tokens))]
        text = numpy.array(tokens, dtype=numpy.int64)
        part = self._assemble(None, [text], [alone], self._width(alone, 0), [0])
        part.batch.types[:] = self.form.first_type
        return part

    def _asked(self, query: Sequence[int] | None) -> int:
        """Return the tokens that the query takes in each window."""
        if query is None:
            return 0
        return self.query_tokens if self.fixed else len(query)

    def _width(self, spans: list[Span], asked: int) -> int:
        return self.padded(self.form.added + asked + max(end - start for start, end in self._even(spans)))

    def _even(self, spans: list[Span]) -> list[Span]:
        """With ``fixed``, the last window is filled up to the length of the first."""
        longest = spans[0][1] - spans[0][0]
        return [(start, start + longest) for start, _ in spans] if self.fixed else spans

    def _assemble(
        self,
        query: Sequence[int] | None,
        documents: Sequence[Any],
        spans: list[list[Span]],
        width: int,
        group: list[int],
    ) -> MicroBatch:
        form, asked = self.form, self._asked(query)
        head = len(form.before) + asked + len(form.between)
        cuts = [(place, cut) for place, number in enumerate(group) for cut in self._even(spans[number])]
        shape = (len(cuts), width)
        ids = numpy.full(shape, self.pad_id, dtype=numpy.int64)
        mask, types = numpy.zeros(shape, dtype=numpy.int64), numpy.zeros(shape, dtype=numpy.int64)
        before = [*form.before, *(query or ())]
        ids[:, : len(before)] = before
        ids[:, head - len(form.between) : head] = form.between
        types[:, :head] = form.first_type
        mask[:, : len(before)] = 1
        mask[:, head - len(form.between) : head] = 1
        lengths = numpy.zeros(len(cuts), dtype=numpy.int64)
        for row, (place, (start, end)) in enumerate(cuts):
            part = documents[group[place]][start:end]
            lengths[row] = len(part)
            close = head + (end - start if self.fixed else len(part))
            ids[row, head : head + len(part)] = part
            ids[row, close : close + len(form.after)] = form.after
            mask[row, head : head + len(part)] = 1
            mask[row, close : close + len(form.after)] = 1
            types[row, head : close + len(form.after)] = form.second_type
        return MicroBatch(
            Batch(ids, mask, types),
            group,
            numpy.array([place for place, _ in cuts], dtype=numpy.int64),
            slice(len(form.before), len(form.before) + asked),
            slice(head, width - len(form.after)),
            lengths,
        )


@dataclass
class Work:
    """Work of one scoring that no machine changes."""

    declared: Config
    pairs: int = 0
    windows: int = 0
    tokens: int = 0
    padded_tokens: int = 0
    calls: int = 0
    flop: int = 0

    def add(self, batch: Batch) -> None:
        """Count one call of the model: multiplications and additions of its layers on padded lengths."""
        rows, length = batch.ids.shape
        self.calls += 1
        self.windows += rows
        self.tokens += int(batch.mask.sum())
        self.padded_tokens += rows * length
        self.flop += self.declared.flop(rows, length, int(batch.types.sum()))

    def counts(self) -> dict[str, int]:
        """Return all counts by name."""
        names = ("pairs", "windows", "tokens", "padded_tokens", "calls", "flop")
        return {name: int(getattr(self, name)) for name in names}
