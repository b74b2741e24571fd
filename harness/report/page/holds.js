// How far a rank holds, for one row when somebody asks: the page's copy of harness/analysis/leaderboard.py, which says how and why.
(function (page) {
  "use strict";

  const MOST = 200000; // rows times rankings that answer at once
  const TAIL = 0.025;

  function decoded(text, scale) {
    const bytes = window.atob(text);
    return Float64Array.from({ length: bytes.length / 2 }, (_, at) => {
      return (bytes.charCodeAt(2 * at) + 256 * bytes.charCodeAt(2 * at + 1)) * scale;
    });
  }

  // The ranks of some rows with these columns; rates are found anew, unless they are given.
  function ranks(rows, accuracy, ranking, columns, mode) {
    const metrics = ranking.metrics.map((metric, at) => {
      const given = metric.rate.status === "given" ? metric.rate.value : null;
      const asked = { value: columns[at], higher: metric.higher, given };
      return { ...metric, value: columns[at], rate: page.dynascore.rate(rows, accuracy, asked, mode, ranking.cutoff) };
    });
    const scores = page.dynascore.scores(rows, accuracy, ranking.share.accuracy, metrics);
    return scores && page.dynascore.ranks(scores).ranks;
  }

  const MANY = "too many rows to compute it here; harness leaderboard does";
  const UNDEFINED = "not defined: there, an exchange rate has no value";
  const NO_QUERIES = "not known: no samples by query, or too many rows for a page";

  // The inner 95 % of numbers, or all of them; or why there is none.
  function span(numbers, tail) {
    if (numbers.some((each) => each === null)) return UNDEFINED;
    const sorted = numbers.slice().sort((a, b) => a - b);
    const last = sorted.length - 1;
    return [sorted[Math.round(last * tail)], sorted[Math.round(last * (1 - tail))]];
  }

  function columnsOf(ranking) {
    return ranking.metrics.map((metric) => metric.value);
  }

  // One other system at a time is taken out; places among the same rest are compared.
  function withoutEachSystem(row, ranking, accuracy, mode) {
    const systemOf = (number) => page.content.rows[number].system;
    const names = [...new Set(ranking.rows.map(systemOf))].filter((name) => name !== systemOf(row));
    const full = ranking.ranked.ranks[ranking.rows.indexOf(row)];
    const found = names.map((name) => {
      const places = [...ranking.rows.keys()].filter((at) => systemOf(ranking.rows[at]) !== name);
      const kept = places.map((at) => ranking.rows[at]);
      const before = page.dynascore.ranks(Float64Array.from(places, (at) => ranking.scores[at])).ranks;
      const after = ranks(kept, accuracy, ranking, columnsOf(ranking), mode);
      const at = kept.indexOf(row);
      return after && full + after[at] - before[at];
    });
    return span([full, ...found], 0);
  }

  function underOtherWeights(row, ranking, accuracy) {
    const parts = [
      [ranking.share.accuracy, ranking.rows.map((number) => accuracy[number])],
      ...ranking.metrics.map((metric) => [
        metric.weight,
        ranking.rows.map((number) => ((metric.higher ? 1 : -1) * metric.value[number]) / metric.rate.value),
      ]),
    ].filter(([weight]) => weight > 0);
    const at = ranking.rows.indexOf(row);
    const found = page.content.perturbations.map((moves) => {
      const weights = parts.map(([weight], part) => Math.max(weight + moves[part], 1e-9));
      const score = (place) => parts.reduce((sum, [, values], part) => sum + weights[part] * values[place], 0);
      const own = score(at);
      return 1 + ranking.rows.reduce((better, _, place) => better + (score(place) > own ? 1 : 0), 0);
    });
    return span(found, TAIL);
  }

  function withOtherQueries(row, ranking, accuracy, mode, measure) {
    const drawn = ranking.group.resampled[measure];
    if (!drawn) return NO_QUERIES;
    const slower = ranking.group.slower;
    const points = ranking.rows.map((number) => decoded(drawn.rows[number] || "", drawn.scale));
    const times = ranking.rows.map((number) => slower && slower.rows[number] && decoded(slower.rows[number], slower.scale));
    if (points.some((each) => !each.length)) return NO_QUERIES;
    const at = ranking.rows.indexOf(row);
    // Cost follows from latency, but for scenarios whose cost is made of a throughput.
    const timed = new Set(ranking.group.scenario === "single_stream" ? ["latency", "cost"] : ["latency"]);
    const found = Array.from(points[0], (_, draw) => {
      const moved = accuracy.slice();
      const columns = columnsOf(ranking).map((column) => column.slice());
      ranking.rows.forEach((number, place) => {
        moved[number] = points[place][draw];
        if (!times[place]) return;
        columns.forEach((column, metric) => {
          if (timed.has(ranking.metrics[metric].name)) column[number] *= times[place][draw];
        });
      });
      const made = ranks(ranking.rows, moved, ranking, columns, mode);
      return made && made[at];
    });
    return span(found, TAIL);
  }

  // Spans of a ranked row: {systems, weights, queries}, each [best, worst] or a sentence; null where it has no rank.
  function of(row, view) {
    const ranking = view.rankings.find((each) => each.group.number === page.content.rows[row].place);
    if (!ranking.scores) return null;
    const accuracy = page.data.column("accuracy", view.settings).value;
    const systems = new Set(ranking.rows.map((number) => page.content.rows[number].system)).size;
    const mode = view.state.mode;
    const many = (times) => ranking.rows.length * times > MOST;
    return {
      systems: many(systems) ? MANY : withoutEachSystem(row, ranking, accuracy, mode),
      weights: many(page.content.perturbations.length) ? MANY : underOtherWeights(row, ranking, accuracy),
      queries: many(page.content.perturbations.length)
        ? MANY
        : withOtherQueries(row, ranking, accuracy, mode, page.content.measures[view.state.measure]),
    };
  }

  page.holds = { of };
})((window.harnessPage = window.harnessPage || {}));
