"""A dataset -> a fixed sample of its queries by seed, and queries to warm up with."""

from __future__ import annotations

import random
from collections import Counter

from harness.datasets.records import Dataset, QuerySample
from harness.errors import FileError

# The most of a sample that warms up, where the dataset has no other queries: one in so many.
_SHARE = 5


def draw(dataset: Dataset, size: int, warmup: int, seed: int) -> QuerySample:
    """Draw a fixed sample of at most ``size`` judged queries, and at most ``warmup`` queries to warm up with.

    Warm-up queries are those that were not drawn; where these are fewer than a fifth of the sample, queries of the
    sample fill up to that fifth.  Those are judged and never timed.  Titles of documents would not do: a just-in-time
    compiler compiles other code for them.

    Raises:
        FileError: no query has a judgement, or no query is left to warm up with.
    """
    judged = dataset.judged
    eligible = sorted((query for query in dataset.queries if query.query_id in judged), key=lambda q: q.query_id)
    if not eligible:
        raise FileError(f"dataset {dataset.name}: no query has a judgement; add some to its qrels")
    shuffled = random.Random(f"sample:{seed}").sample(eligible, len(eligible))
    drawn = shuffled[:size]
    ids, texts = {query.query_id for query in drawn}, Counter(query.text for query in drawn)
    rest = sorted((each for each in dataset.queries if each.query_id not in ids), key=lambda query: query.query_id)
    others = [query for query in rest if query.text not in texts]
    warm = random.Random(f"warmup:{seed}").sample(others, min(warmup, len(others)))
    lacking = min(warmup, max(len(drawn) // _SHARE, 1)) - len(warm)
    if lacking > 0 and len(drawn) > 1:
        # Never a text that is timed too: an answer kept from warm-up would make it fast.
        warm += [query for query in drawn if texts[query.text] == 1][:lacking]
    if not warm or len(set(drawn) - set(warm)) == 0:
        raise FileError(
            f"dataset {dataset.name}: {len(drawn)} queries leave none to warm up with; add queries with other texts,"
            " judged or not"
        )
    return QuerySample(tuple(sorted(drawn, key=lambda query: query.query_id)), tuple(warm))
