"""Find statements of the text that its tables or its other sections contradict; they are given in our own words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.analysis.leaderboard import Leaderboard
from harness.analysis.published import Erratum, Published, Scored
from harness.pricing.prices import Snapshot
from harness.report.plots import ranking
from harness.report.plots.ranking import WinnerRegion

from .further import settings
from .scores import RecomputedScores, recomputed_scores

_FAMILY = "ColBERTv2-"
_DOMINANT, _SECOND = "ColBERTv2-L", "BT-SPLADE-L"
_QUALITY = 0.9  # the weight of accuracy with which the ColBERTv2 systems are said to dominate


def find_statements(published: Published, snapshot: Snapshot) -> Iterator[Erratum]:
    """Yield each statement that printed scores, the weightings that win, or other sections contradict."""
    recomputed = recomputed_scores(published, snapshot)
    yield from _all_ahead(published)
    defaults = {made.dataset.name: made for made in recomputed if made.table is made.dataset.scores[0]}
    if len(defaults) > 1:
        first, last = (defaults[each.name] for each in (published.about.datasets[0], published.about.datasets[-1]))
        yield from _dominant(last)
        yield from _more_decisive(first, last)
    yield from _training(published)


def _training(published: Published) -> Iterator[Erratum]:
    """Yield that section 3 and appendix A contradict each other on what trained the models."""
    stated = {(line.subject, line.kind): line for line in settings(published)}
    everywhere = stated.get(("all neural models", "trained on"))
    further = stated.get(("all neural models", "trained further on XOR-TyDi"))
    apart = stated.get(("DPR on XOR-TyDi", "published weights without further training"))
    epochs = stated.get(("finetuned", "epochs for MS MARCO and XOR-TyDi"))
    if everywhere is None or apart is None:
        return
    row = next(n for n, line in enumerate(published.table3c, 1) if (line.system, line.dataset) == ("DPR", "XOR-TyDi"))
    evidence = f"{apart.section}: on XOR-TyDi DPR is the {apart.value} encoders as published"
    if epochs is not None and further is not None and further.value == "no":
        evidence += f"; it also states {epochs.value} epochs of training for XOR-TyDi, where section 3 has no training"
    yield _statement(
        "3c",
        row,
        f"{everywhere.section}, DPR on XOR-TyDi",
        f"all neural models were trained on {everywhere.value}",
        f"the DPR of XOR-TyDi was not trained on {everywhere.value}",
        evidence,
    )


def _all_ahead(published: Published) -> Iterator[Erratum]:
    """Yield tables where accuracy weighs 0.9 and other systems stand before rows of ColBERTv2."""
    for dataset in published.about.datasets:
        for table in dataset.scores:
            lines = published.scores[table.number]
            every = [line for line in lines if line.system.startswith(_FAMILY)]
            best = min((line.rank for line in lines if line not in every), default=len(lines))
            behind = [line for line in every if line.rank > best]
            if table.weights.get("accuracy") != _QUALITY or not behind:
                continue
            ahead = [line for line in lines if line not in every and line.rank < behind[-1].rank]
            yield _statement(
                table.number,
                lines.index(behind[0]) + 1,
                f"section 4.2, {dataset.label}",
                f"with {_QUALITY} on accuracy all ColBERTv2 systems dominate all others",
                f"{len(behind)} of {len(every)} ColBERTv2 rows are behind {_ranks(ahead)}",
                f"Table {table.number}: they have {_ranks(behind)}",
            )


def _ranks(lines: Sequence[Scored]) -> str:
    """Write systems with their ranks, and ranks that follow one another as a range."""
    ranks = [line.rank for line in lines]
    whole = len(ranks) > 1 and ranks == list(range(ranks[0], ranks[-1] + 1))
    numbers = f"{ranks[0]} to {ranks[-1]}" if whole else ", ".join(map(str, ranks))
    return f"rank{'s' if len(ranks) > 1 else ''} {numbers} ({', '.join(dict.fromkeys(line.system for line in lines))})"


def _dominant(made: RecomputedScores) -> Iterator[Erratum]:
    """Yield that another system wins most weightings than the text says."""
    regions = winning_regions(made.board)
    shares = winning_shares(regions)
    winner = max(shares, key=lambda name: shares[name])
    if winner == _DOMINANT:
        return
    highest = max(weights[0] for region in regions if region.winner.system == winner for weights in region.corners)
    yield _statement(
        made.table.number,
        _place(made, _DOMINANT),
        f"section 4.2 and Figure 2, {made.dataset.label}",
        f"over all weightings {_DOMINANT} is the dominant system, followed by {_SECOND}",
        f"{winner} wins {shares[winner]:.0%} of all weightings, {_DOMINANT} {shares.get(_DOMINANT, 0.0):.0%}",
        f"scores of Tables {made.dataset.table3} and 3c with the rates of Table {made.table.number}: {winner} wins at"
        f" weights of accuracy up to {highest:.2f}",
    )


def winning_regions(board: Leaderboard) -> tuple[WinnerRegion, ...]:
    """Return the weightings that each row wins."""
    rates = {name: rate.value for name, rate in board.rates.items() if rate.value is not None}
    return ranking.regions(ranking.candidates_of(board, rates))


def winning_shares(regions: Sequence[WinnerRegion]) -> dict[str, float]:
    """Return the share of all weightings that each system wins on any hardware."""
    shares: dict[str, float] = {}
    for region in regions:
        shares[region.winner.system] = shares.get(region.winner.system, 0.0) + region.share
    return shares


def _more_decisive(first: RecomputedScores, last: RecomputedScores) -> Iterator[Erratum]:
    """Yield that ColBERTv2's lead is smaller on the last dataset than on the first."""
    leads = [_lead(made) for made in (first, last)]
    if leads[1] < leads[0]:
        yield _statement(
            last.table.number,
            _place(last, _SECOND),
            f"section 4.2, {last.dataset.label}",
            f"ColBERTv2 wins decisively on {last.dataset.label}, narrowly over {_SECOND} on {first.dataset.label}",
            f"it leads by {leads[1]:.3f} on {last.dataset.label} and by {leads[0]:.3f} on {first.dataset.label}",
            f"the best rows of both systems in Tables {last.table.number} and {first.table.number}",
        )


def _lead(made: RecomputedScores) -> float:
    family, second = (
        max(float(line.dynascore.value) for line in made.lines if line.system.startswith(name))
        for name in (_FAMILY, _SECOND)
    )
    return family - second


def _place(made: RecomputedScores, system: str) -> int:
    """Return the first row of a system, else 1."""
    return next((place for place, line in enumerate(made.lines, start=1) if line.system == system), 1)


def _statement(table: str, number: int, row: str, printed: str, follows: str, evidence: str) -> Erratum:
    return Erratum.model_construct(
        kind="text", table=table, number=number, row=row, printed=printed, follows=follows, evidence=evidence
    )
