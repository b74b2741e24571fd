"""The page on published tables: how they are made again, what does not agree, and what their costs became."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable

from harness.analysis import published as published_tables
from harness.analysis import results_folder
from harness.analysis.published import Published
from harness.config import data_root, published_folder
from harness.pricing import prices
from harness.pricing.offers import Offer
from harness.pricing.prices import Snapshot
from harness.report.document import Section
from harness.report.writers import markdown_escape
from results.published.santhanam2023.study import find_errata, further, paper
from results.published.santhanam2023.study.costs import costs, rents
from results.published.santhanam2023.study.dialects import MARKDOWN
from results.published.santhanam2023.study.scores import recomputed_scores
from scripts.docs import captions

# The page stays as it is when a newer price list arrives.
NOW = datetime.date(2026, 7, 20)


def page() -> str:
    """``docs/reference/published.md``."""
    published = published_tables.read(data_root() / "results" / "published" / "santhanam2023")
    follows, now = published.follows(), prices.snapshot(NOW)
    wrong = find_errata(published, follows)
    parts = (
        _head(published),
        MARKDOWN.write(paper.recomputed(published, follows, markdown_escape), 2),
        _figures(),
        _scores(published, follows),
        f"## {len(wrong)} errata\n\n{_ERRATA}",
        MARKDOWN.write(Section(notes=paper.listed(wrong, markdown_escape).notes), 2),
        _changed(published, follows, now),
        MARKDOWN.write(paper.rented(published, follows, now, markdown_escape), 3),
        MARKDOWN.write(paper.repriced(published, follows, now, markdown_escape), 3),
        _reference(),
    )
    return "\n\n".join(parts) + "\n"


def _reference() -> str:
    """Describe the measured result that ships, by its stored jobs."""
    table = results_folder.read(published_folder() / "quickstart").table
    row = next(row for row in table.rows if row.system == "bm25")
    measure = table.measures[0]
    assert row.machine is not None and row.latency.mean_s.value is not None
    return f"""## A measured result

`results/published/quickstart/` is a result of our own, sealed as each run seals it: the suite
`suites/quickstart.toml` on `scifact-1200`, {row.queries} queries x {row.trials} trials on {row.machine.cpu_model}
with {row.machine.host_cpus} CPUs. For `{row.system}`, {measure} is {row.measured(measure):.3f} and the mean latency
{1e3 * row.latency.mean_s.value:.3g} ms; the verdict on its timing is `{row.validity.value}`.

```sh
harness report quickstart                   # the table; --wide, --format html and all other formats work, too
harness explain bm25 --results quickstart   # how each number was made, and what is in doubt
harness verify quickstart                   # its seals and checksums
make reference                              # measures it again, on a machine that does nothing else
```

`results/published/growth.csv` has build time, index and memory of some systems at 3,000 to a million
[generated documents](../method/sizes.md#an-example). `harness plan` estimates a first run by them;
`python -m scripts.growth RESULTS` writes the file."""


def _scores(published: Published, follows: Snapshot) -> str:
    """Write what became of each table of scores, and the first of each dataset in full."""
    every = recomputed_scores(published, follows)
    whole = [MARKDOWN.write(paper.scored(made, {}, markdown_escape), 3) for made in every if made.table.again]
    lines = [
        f"| {made.table.number} | {made.dataset.label} | "
        + " / ".join(f"{made.table.weights[name]:g}" for name in ("accuracy", "cost", "latency"))
        + f" | {len(made.lines)} | {made.largest_difference:.3f} | {made.other_ranks} |"
        for made in every
    ]
    head = "| table | dataset | accuracy / cost / latency | scores | largest difference | other ranks |"
    rows = "\n".join((head, "|---|---|---|---:|---:|---:|", *lines))
    count = sum(len(made.lines) for made in every)
    return f"""### {count} Dynascores made again

Tables 4a and 4b are printed again as 7a and 8a. All scores are made of printed accuracies, latencies and costs, with
the same two rates for all tables of a dataset. Accuracies are printed to one digit, which moves a score by up to
{max(made.largest_difference for made in every):.3f}; with the accuracies that the scores imply, each score agrees to
0.001 and each row has its rank (`tests/published_study/test_scores.py`). `harness report santhanam2023 --wide` has
every line.

{rows}

""" + "\n\n".join(whole)


def _head(published: Published) -> str:
    about = published.about
    follows = published.follows()
    every = costs(published, follows)
    agree = sum(cost.agrees for cost in every)
    second = prices.snapshot(datetime.date(2022, 12, 5))
    types = {cost.instance_type for cost in every}
    differ = sum(second.price_of(cost.instance_type) != float(cost.usd_per_hour) for cost in every)
    software = [line for line in further.settings(published) if line.kind in ("commit", "version")]
    stated = ", ".join(f"{line.subject} {line.value}" for line in software)
    same = "the same price for each" if not differ else f"another price for {differ}"
    return f"""# Published tables

Generated by `make docs` from `results/published/` and `instance_profiles/`.

`results/published/santhanam2023/` holds Tables 1 to 8, commits, versions and epochs of

> {about.citation()}

The figures stand as printed ("14.90" is rounded to two digits). `published.toml` says where they are from, their units,
how each column is rounded, which prices they follow, and whose latency of Table 1 each row of Table 2 takes.
`errata.csv` records the contradictions; `study/` finds them and prints the tables in the paper's shape.
harness never executes a `study/` of another folder.
Licence: {about.licence}.

```sh
harness report santhanam2023 --wide                     # all tables, errata, costs and scores made again, then and now
harness report santhanam2023 --wide --as-of 2022-12-05  # against other prices (also --region, --term)
harness report santhanam2023 --format json              # or csv
harness leaderboard santhanam2023 --dataset msmarco --weights quality --as-of 2022-12-05  # Table 7b
```

Nothing of this was measured here. The rows are marked `published`, their validity `unknown`; the paper prints means and
no samples, so percentiles, intervals, memory and load time are missing, and each says so. GPUs, CPUs and memory are
what a system was given; the instance type may have more (a p3.8xlarge has 4 GPUs, and all four are paid for where one
is used).

The paper runs BM25, DPR and PLAID through PrimeQA, and SPLADE in its authors' code
({stated}).
Our suites call Pyserini, faiss, colbert-ai and Lucene directly, at the versions that each image locks (`images/*/`).
So they repeat the paper's method, not its software: expect other latencies.

## How costs are made again

A latency printed as 19 ms may have been anything from 18.5 to 19.5 ms, so a cost that follows from it is an interval; a
printed cost agrees if some number in that interval rounds to it. Fractions are exact. Prices are those of
{follows.as_of}, the newest that are not younger than the paper's first version ({about.prices.as_of}); the list of
{second.as_of} has {same} of the {len(types)} types that the paper names.
**{agree} of {len(every)} costs agree.**"""


def _figures() -> str:
    shown = {name: text for name, text in captions.captions().items() if name.endswith(("-cost", "-winners"))}
    drawn = "\n\n".join(f"![{text}](../assets/{name}.png)" for name, text in shown.items())
    return f"""## Figures 1 and 2, and Tables 4, 7 and 8

At the paper's prices and exchange rates; marks: [pictures.md](../guides/pictures.md), rates:
[leaderboards.md](../method/leaderboards.md). The paper's Figure 1 is of the costs of Table 2; Table 3's costs, measured
in one protocol, follow in the same form. A page in which weights, prices and rates can be moved:
`harness report santhanam2023 --format html -o page.html`.

{drawn}"""


_ERRATA = """A contradiction is one of these:

| kind | what is compared |
|---|---|
| `cost` | the printed cost with the latency and the instance's price, as above |
| `hardware` | CPUs, GPUs and memory that a system is said to need (or was given) with what its instance type has |
| `instance` | the type with the other types that the paper uses: a cheaper one of them provides the same |
| `latency` | Table 2's latency, taken from another machine, with Table 3's of the same system on no less hardware |
| `accuracy` | the accuracy of the row that Table 2 takes its latency from with Table 3c's of the same system |
| `score` | the rows and the order of Tables 4, 7 and 8 with Table 3's rows and the scores (nothing found) |
| `text` | statements of section 4.2 with Tables 4, 7 and 8 and the weightings that win; section 3 with appendix A |

`errata.csv` records the list; `python -m results.published.santhanam2023.study --errata` makes it again, and
`tests/published_study/test_errata.py` pins it."""


def _changed(published: Published, follows: Snapshot, now: Snapshot) -> str:
    pairs = rents(published, follows, now)
    types = {rent.instance_type: rent for rent in pairs}
    moved = sorted(name for name, rent in types.items() if rent.same != rent.then)
    but = f" (not {', '.join(moved)})" if moved else ""
    other = _swaps((rent.cheapest_then, rent.cheapest) for rent in pairs)
    other_x86 = _swaps((rent.cheapest_x86_then, rent.cheapest_x86) for rent in pairs)
    chosen = [rent for rent in pairs if _name(rent.cheapest_then) != rent.instance_type]
    gpu = [rent for rent in pairs if rent.hardware.gpus and rent.cheapest_then]
    shares = [offer.usd_per_hour / float(rent.then) for rent in gpu if (offer := rent.cheapest_then)]
    cards = sorted({str(offer.instance.gpu_name) for rent in gpu if (offer := rent.cheapest_then)})
    return f"""## {follows.as_of} to {now.as_of}

- **The same types cost the same**: {len(types) - len(moved)} of {len(types)} have the price of {follows.as_of}{but}.
  Where "same type" differs from "printed" below, the rounding of the printed latency is why.
- **What one would rent** is another type for {sum(other.values())} of {len(pairs)} pairs of hardware and type on any
  architecture ({", ".join(other)}), and for {sum(other_x86.values())} on x86_64 alone
  ({", ".join(other_x86)}).
- **The choice of machine matters more than the years.** For {len(chosen)} of the {len(pairs)} pairs the cheapest type
  that provides the hardware was another one than the paper's, already then. All {len(gpu)} with a GPU are among them:
  one GPU with the V100's memory or more ({", ".join(cards)}) was to be had for {min(shares):.0%} to {max(shares):.0%}
  of the price of the paper's type, which has four GPUs where it is a p3.8xlarge. But another GPU is another latency:
  those costs take the paper's, and are a guess until somebody measures there."""


def _swaps(pairs: Iterable[tuple[Offer | None, Offer | None]]) -> Counter[str]:
    """``then to now`` -> how often, where the two differ."""
    return Counter(f"{_name(then)} to {_name(now)}" for then, now in pairs if _name(then) != _name(now))


def _name(offer: Offer | None) -> str | None:
    return offer.instance.instance_type if offer else None
