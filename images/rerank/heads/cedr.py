"""CEDR: matching models over the cosines of a transformer's token vectors in every layer, beside its first token.

MacAvaney et al., *CEDR: Contextualized Embeddings for Document Ranking*, SIGIR 2019; tensors have the names of the
authors' modules, whose unused second transformer (``bert_ranker``) may be in the file.

``interaction_padding = masked``: padding has no similarity; a document's padding is left out, so that no score depends
on the batch, and queries have ``query_tokens`` rows, as the authors' models of fixed size expect.  ``s3``: padding
takes part with its own vectors, as in FlexNeuART, where the test for padding never fires.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from encoder.errors import BadCheckpoint
from encoder.heads import Tensors

from heads.documents import by_document, first_windows, read_strictly
from heads.windows_batch import DocumentHead, Windows

_KERNEL_MEANS = (-0.9, -0.7, -0.5, -0.3, -0.1, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
_BINS = 11
_HIDDEN = 5
_GRAMS = (1, 2, 3)
_FILTERS = 32
_BEST = 2


class Interaction(NamedTuple):
    """Cosines of a micro-batch's queries and documents, and the mean of each document's first tokens.

    Attributes:
        cosines: (pairs, layers, query rows, document columns); 0 where a row or column is not used.
        rows: True for query positions in use, bool (pairs, query rows).
        columns: True for document positions in use, bool (pairs, document columns).
        cls: (pairs, hidden).
    """

    cosines: torch.Tensor
    rows: torch.Tensor
    columns: torch.Tensor
    cls: torch.Tensor


class Cedr(DocumentHead):
    """Base of the three: the similarity matrix of each layer, the query as the first window shows it."""

    split = "disjoint"
    window = stride = 477
    all_layers = True

    def __init__(self, config: Any, tensors: Tensors, params: dict[str, Any]) -> None:
        super().__init__(config, tensors, params)
        self.query_rows = int(params["query_tokens"])
        self.every_position = params["interaction_padding"] == "s3"
        # All chunks are summed and divided by the number of real ones (FlexNeuART), or real ones alone are there.
        self.chunk = int(params["window"] or self.window) if params["pad_windows"] == "s3" else 0
        if self.every_position and not self.chunk:
            raise BadCheckpoint("interaction_padding = s3 needs pad_windows = s3: else scores depend on the batch")
        self._parts(int(config.num_hidden_layers) + 1, int(config.hidden_size))
        read_strictly(self, tensors, ("bert_ranker.",))

    def _parts(self, layers: int, hidden: int) -> None:
        """Make the modules over the interaction."""
        raise NotImplementedError

    def score(self, interaction: Interaction) -> torch.Tensor:
        """Return one score a document."""
        raise NotImplementedError

    def forward(self, windows: Windows) -> torch.Tensor:
        """See :class:`DocumentHead`."""
        return self.score(Interaction(*self._cosines(windows), self._cls(windows)))

    def _cls(self, windows: Windows) -> torch.Tensor:
        vectors, present = by_document(windows.first, windows)
        count = present.sum(1)
        if self.chunk:
            tokens = torch.zeros_like(count).index_add_(0, windows.pair, windows.document_mask.sum(1))
            count = torch.ceil(tokens / self.chunk).clamp(min=1)
        total: torch.Tensor = vectors.sum(1)
        return total / count[:, None]

    def _cosines(self, windows: Windows) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the first three parts of an interaction: document columns are those of its windows in a row."""
        first = first_windows(windows)
        asked = _unit(windows.states[:, first, windows.query])
        cosines = asked[:, windows.pair] @ _unit(windows.states[:, :, windows.document]).transpose(2, 3)
        layers, _, length, _ = cosines.shape
        used = windows.document_mask[:, windows.document].to(torch.bool)
        query = windows.mask[first][:, windows.query].to(torch.bool)
        if self.every_position:
            used, query = torch.ones_like(used), torch.ones_like(query)
        window, position = used.nonzero(as_tuple=True)
        document = windows.pair[window]
        counts = torch.bincount(document, minlength=windows.pairs)
        column = torch.arange(len(document), device=document.device) - (counts.cumsum(0) - counts)[document]
        columns = torch.arange(max(int(counts.max()), 1), device=document.device) < counts[:, None]
        placed = cosines.new_zeros((windows.pairs, columns.shape[1], layers, self.query_rows))
        placed[document, column, :, :length] = cosines.permute(1, 3, 0, 2)[window, position]
        rows = torch.zeros((windows.pairs, self.query_rows), dtype=torch.bool, device=query.device)
        rows[:, :length] = query
        return placed.permute(0, 2, 3, 1) * rows[:, None, :, None], rows, columns


def _unit(vectors: torch.Tensor) -> torch.Tensor:
    vectors = vectors.to(torch.float32) if vectors.dtype != torch.float64 else vectors
    return vectors / (vectors.norm(dim=-1, keepdim=True) + 1e-9)


class Kernel(torch.nn.Module):
    """A Gaussian kernel's mean and width, which training moves."""

    def __init__(self, mean: float, width: float) -> None:
        super().__init__()
        self.mu, self.sigma = (torch.nn.Parameter(torch.tensor(value)) for value in (mean, width))


class KernelBank(torch.nn.Module):
    """The kernels of KNRM."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels = torch.nn.ModuleList([Kernel(mean, 0.001 if mean == 1 else 0.1) for mean in _KERNEL_MEANS])


class CedrKnrm(Cedr):
    """Soft matches counted by Gaussian kernels; ``combine`` (1, kernels x layers + hidden), kernels outermost."""

    reads = ("kernels.", "combine.", "bert_ranker.")

    def _parts(self, layers: int, hidden: int) -> None:
        self.kernels = KernelBank()
        self.combine = torch.nn.Linear(len(_KERNEL_MEANS) * layers + hidden, 1)

    def score(self, interaction: Interaction) -> torch.Tensor:
        """See :class:`Cedr`."""
        cosines, rows, columns, cls = interaction
        # A query row that matches nothing at all, padding or that of an empty document, counts 0.
        counted = (rows & columns.any(1, keepdim=True))[:, None]
        features = []
        for kernel in self.kernels.kernels:
            distance = (cosines - kernel.mu) / kernel.sigma
            soft = (torch.exp(-0.5 * distance * distance) * columns[:, None, None]).sum(-1)
            features.append((torch.log(soft + 1e-6) * counted).sum(-1))
        scores: torch.Tensor = self.combine(torch.cat([*features, cls], dim=1))
        return scores.squeeze(-1)


class CedrDrmm(Cedr):
    """Logarithmic histograms of the cosines of each query row; ``hidden_1``, ``hidden_2``, summed over all rows.

    Rows without a token have empty histograms and count too, as in the authors' code.
    """

    reads = ("hidden_1.", "hidden_2.", "bert_ranker.")

    def _parts(self, layers: int, hidden: int) -> None:
        self.hidden_1 = torch.nn.Linear(_BINS * layers + hidden, _HIDDEN)
        self.hidden_2 = torch.nn.Linear(_HIDDEN, 1)

    def score(self, interaction: Interaction) -> torch.Tensor:
        """See :class:`Cedr`."""
        cosines, rows, columns, cls = interaction
        # The nudge puts a cosine of 1 into the last bin.
        bins = ((cosines + 1.000001) / 2 * (_BINS - 1)).to(torch.int64).clamp(0, _BINS - 1)
        used = (rows[:, None, :, None] & columns[:, None, None]).expand_as(bins).to(cosines.dtype)
        pairs, layers, length, _ = cosines.shape
        histogram = cosines.new_zeros((pairs, layers, length, _BINS)).scatter_add_(3, bins, used)
        features = torch.log(histogram + 1e-5).permute(0, 2, 3, 1).reshape(pairs, length, _BINS * layers)
        everything = torch.cat([features, cls[:, None].expand(pairs, length, cls.shape[1])], dim=2)
        scores: torch.Tensor = self.hidden_2(torch.relu(self.hidden_1(everything)))
        return scores.squeeze(-1).sum(1)


class NGrams(torch.nn.Module):
    """Convolution over n query rows and n document columns, its filters' largest, the best two of each row."""

    def __init__(self, size: int, layers: int) -> None:
        super().__init__()
        self.size = size
        self.conv = torch.nn.Conv2d(layers, _FILTERS, size)

    def forward(self, cosines: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        """Return (pairs, rows, 2), the larger first; 0 where a document has fewer columns."""
        padded = torch.nn.functional.pad(cosines, (0, self.size - 1, 0, self.size - 1))
        best = torch.relu(self.conv(padded)).amax(1) * columns[:, None]
        found: torch.Tensor = (
            torch.nn.functional.pad(best, (0, max(0, _BEST - best.shape[2]))).topk(_BEST, dim=2).values
        )
        return found


class CedrPacrr(Cedr):
    """Matches of 1, 2 and 3 tokens in a row by convolution; ``linear1`` fixes the number of query rows."""

    reads = ("ngrams.", "linear1.", "linear2.", "linear3.", "bert_ranker.")

    def _parts(self, layers: int, hidden: int) -> None:
        self.ngrams = torch.nn.ModuleList([NGrams(size, layers) for size in _GRAMS])
        self.linear1 = torch.nn.Linear(self.query_rows * len(_GRAMS) * _BEST + hidden, 32)
        self.linear2 = torch.nn.Linear(32, 32)
        self.linear3 = torch.nn.Linear(32, 1)

    def score(self, interaction: Interaction) -> torch.Tensor:
        """See :class:`Cedr`."""
        cosines, _, columns, cls = interaction
        best = torch.cat([each(cosines, columns) for each in self.ngrams], dim=2).flatten(1)
        inner = torch.relu(self.linear2(torch.relu(self.linear1(torch.cat([best, cls], dim=1)))))
        scores: torch.Tensor = self.linear3(inner)
        return scores.squeeze(-1)


HEADS: dict[str, type[DocumentHead]] = {"cedr-knrm": CedrKnrm, "cedr-drmm": CedrDrmm, "cedr-pacrr": CedrPacrr}
