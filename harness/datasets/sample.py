"""A dataset -> a fixed sample of its queries by seed, and queries to warm up with."""

from __future__ import annotations

import random

from harness.datasets import files
from harness.datasets.corpus import CORPUS, Corpus
from harness.datasets.records import Dataset, QuerySample
from harness.errors import FileError
from harness.records import Query


def draw(dataset: Dataset, size: int, warmup: int, seed: int) -> QuerySample:
    """A fixed sample of at most ``size`` judged queries, and warm-up queries from outside of it.

    Warm-up queries are the topics that were not drawn; where those do not suffice, titles of documents (or the
    first words of their texts).

    Raises:
        FileError: no query has a judgement, or there are too few texts to warm up with.
    """
    judged = dataset.judged
    eligible = sorted((query for query in dataset.queries if query.query_id in judged), key=lambda q: q.query_id)
    if not eligible:
        raise FileError(f"dataset {dataset.name}: no query has a judgement; add some to its qrels")
    shuffled = random.Random(f"sample:{seed}").sample(eligible, len(eligible))
    sample = sorted(shuffled[:size], key=lambda query: query.query_id)
    drawn = {query.query_id for query in sample}
    texts = {query.text for query in sample}
    others = (query for query in dataset.queries if query.query_id not in drawn and query.text not in texts)
    rest = sorted(others, key=lambda query: query.query_id)
    warm = random.Random(f"warmup:{seed}").sample(rest, min(warmup, len(rest)))
    if len(warm) < warmup:
        warm += _titles(dataset.corpus, warmup - len(warm), seed, texts)
    if len(warm) < warmup:
        raise FileError(
            f"dataset {dataset.name}: {len(warm)} warm-up queries outside the sample, {warmup} are wanted; add queries"
            " without judgements, or lower protocol.warmup_queries or protocol.sample_size"
        )
    return QuerySample(tuple(sample), tuple(warm))


def _titles(corpus: Corpus, count: int, seed: int, taken: set[str]) -> list[Query]:
    """Titles of documents chosen by seed, as queries; a reservoir, so that the corpus is only streamed."""
    chooser = random.Random(f"titles:{seed}")
    kept: list[Query] = []
    seen = 0
    for _, raw in files.json_lines(corpus.folder / CORPUS):
        text = (raw["title"] or " ".join(raw["text"].split()[:12])).strip()
        if not text or text in taken:
            continue
        seen += 1
        query = Query(f"title:{raw['_id']}", text)
        if len(kept) < count:
            kept.append(query)
        elif (place := chooser.randrange(seen)) < count:
            kept[place] = query
    return kept
