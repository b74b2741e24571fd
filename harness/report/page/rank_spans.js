// How far the rank of one row holds: the page's copy of harness/analysis/leaderboard.py, which says how and why.
const MOST_RANKED = 200000; // rows times rankings that answer at once
const TAIL = 0.025;
const MANY = "too many rows to compute it here; harness leaderboard does";
const UNDEFINED = "not defined: there, an exchange rate has no value";
const NO_QUERIES = "not known: no samples by query, or too many rows for a page";

function decoded(text, scale) {
  const bytes = window.atob(text);
  const at = (place) => bytes.charCodeAt(2 * place) + 256 * bytes.charCodeAt(2 * place + 1);
  return Array.from({ length: bytes.length / 2 }, (_, place) => at(place) * scale);
}

// The ranks of some rows with these columns; a rate that was not given is computed anew.
function ranksWith(rows, accuracy, ranking, columns, mode) {
  const metrics = ranking.metrics.map((metric, at) => {
    const given = metric.rate.status === "given" ? metric.rate.value : null;
    const asked = { value: columns[at], higher: metric.higher, given };
    return { ...metric, value: columns[at], rate: exchangeRate(rows, accuracy, asked, mode, ranking.cutoff) };
  });
  const found = scores(rows, accuracy, ranking.share.accuracy, metrics);
  return found && ranksOf(found);
}

// The inner 95 % of numbers, or all of them; or why there is none.
function spanOf(numbers, tail) {
  if (numbers.includes(null)) return UNDEFINED;
  const ordered = numbers.sort((a, b) => a - b);
  const last = ordered.length - 1;
  return [ordered[Math.round(last * tail)], ordered[Math.round(last * (1 - tail))]];
}

// One other system at a time is left out, and ranks among the same remaining rows are compared.
function spanWithoutSystems(row, ranking, accuracy, mode) {
  const systemOf = (number) => content.rows[number].system;
  const values = ranking.metrics.map((metric) => metric.value);
  const full = ranking.ranks[ranking.rows.indexOf(row)];
  const moves = systemsIn(ranking).map((name) => {
    if (name === systemOf(row)) return full;
    const places = [...ranking.rows.keys()].filter((at) => systemOf(ranking.rows[at]) !== name);
    const rest = places.map((at) => ranking.rows[at]);
    const before = ranksOf(places.map((at) => ranking.scores[at]));
    const after = ranksWith(rest, accuracy, ranking, values, mode);
    const at = rest.indexOf(row);
    return after && full + after[at] - before[at];
  });
  return spanOf(moves, 0);
}

function systemsIn(ranking) {
  return [...new Set(ranking.rows.map((number) => content.rows[number].system))].sort();
}

function spanOfWeights(row, { rows, share, metrics }, accuracy) {
  const at = rows.indexOf(row);
  const first = share.accuracy > 0 ? 1 : 0; // an accuracy without weight stays without
  const ranks = content.perturbations.map((moves) => {
    const shifted = (weight, part) => Math.max(weight + moves[part], 1e-9);
    const moved = metrics.map((metric, part) => ({ ...metric, weight: shifted(metric.weight, part + first) }));
    return ranksOf(scores(rows, accuracy, first && shifted(share.accuracy, 0), moved))[at];
  });
  return spanOf(ranks, TAIL);
}

function spanOfQueries(row, ranking, accuracy, { mode, measure }) {
  const { resampled, slower, scenario } = ranking.group;
  const drawn = resampled[content.measures[measure]];
  const points = ranking.rows.map((number) => (drawn?.rows[number] ? decoded(drawn.rows[number], drawn.scale) : []));
  if (points.some((each) => !each.length)) return NO_QUERIES;
  const times = ranking.rows.map((number) => slower?.rows[number] && decoded(slower.rows[number], slower.scale));
  const at = ranking.rows.indexOf(row);
  // Cost follows from latency, but for scenarios whose cost is made of a throughput.
  const timed = scenario === "single_stream" ? METRICS : ["latency"];
  const ranks = points[0].map((_, draw) => {
    const drawnAccuracy = accuracy.slice();
    ranking.rows.forEach((number, place) => (drawnAccuracy[number] = points[place][draw]));
    const columns = ranking.metrics.map(({ name, value }) => {
      const values = value.slice();
      if (timed.includes(name)) {
        ranking.rows.forEach((number, place) => (values[number] *= times[place] ? times[place][draw] : 1));
      }
      return values;
    });
    const found = ranksWith(ranking.rows, drawnAccuracy, ranking, columns, mode);
    return found && found[at];
  });
  return spanOf(ranks, TAIL);
}

// Spans of a ranked row: {systems, weights, queries}, each [best, worst] or a sentence; null without a rank.
function rankSpans(row, view) {
  const ranking = view.rankings.find((each) => each.group.number === content.rows[row].place);
  if (!ranking.scores) return null;
  const accuracy = axisValues("accuracy", view.state).value;
  const bounded = (times, span) => (ranking.rows.length * times > MOST_RANKED ? MANY : span());
  const draws = content.perturbations.length;
  return {
    systems: bounded(systemsIn(ranking).length, () => spanWithoutSystems(row, ranking, accuracy, view.state.mode)),
    weights: bounded(draws, () => spanOfWeights(row, ranking, accuracy)),
    queries: bounded(draws, () => spanOfQueries(row, ranking, accuracy, view.state)),
  };
}
