// The Pareto front with intervals: the page's copy of harness/analysis/pareto_front.py, which says how and why.
const [BETTER, WORSE, EQUAL, UNDECIDED] = ["b", "w", "e", "u"]; // as the letters of a group's pairs

// A column {value, low, high}, turned so that larger is better.  relations {run, pairs}, or null: the number of each
// row's run (-1: none), and how each run compares with each other.
function turned({ value, low, high }, higher, relations) {
  const side = higher ? 1 : -1;
  const ends = [low, high].map((end) => end.map((each, row) => side * (Number.isNaN(each) ? value[row] : each)));
  const [worst, best] = higher ? ends : ends.reverse();
  const bounded = value.map((_, row) => !(Number.isNaN(low[row]) && Number.isNaN(high[row])));
  const known = relations && { ...relations, runs: Math.round(Math.sqrt(relations.pairs.length)) };
  return { value: value.map((each) => side * each), worst, best, bounded, known };
}

// How q compares with p on an axis; `same`: both are rows of one system.
function relation({ value, worst, best, bounded, known }, q, p, same) {
  if (known && known.run[q] >= 0 && known.run[p] >= 0) return known.pairs[known.run[q] * known.runs + known.run[p]];
  if (value[q] === value[p] && (same || (!bounded[q] && !bounded[p]))) return EQUAL;
  if (worst[q] > best[p]) return BETTER;
  return best[q] < worst[p] ? WORSE : UNDECIDED;
}

// A loop, as a front asks this of all pairs of rows.
function surelyBetter(axes, q, p, same) {
  let better = false;
  for (const axis of axes) {
    const answer = relation(axis, q, p, same);
    if (answer === WORSE || answer === UNDECIDED) return false;
    if (answer === BETTER) better = true;
  }
  return better;
}

function betterByValue(axes, q, p) {
  return axes.every(({ value }) => value[q] >= value[p]) && axes.some(({ value }) => value[q] > value[p]);
}

// Each row's state, "front", "contested" or "dominated", in the order of `rows`; each has a value on each axis.
// axes: of turned(); systems: each row's system.
function frontStates(rows, axes, systems) {
  const ordered = Array.from(rows).sort(
    (a, b) => axes.reduce((order, { value }) => order || value[b] - value[a], 0) || a - b,
  );
  // A row that dominates by value comes before the rows that it dominates, and so does each row that dominates it:
  // it is enough to compare with the front.
  const front = [];
  const below = new Set();
  for (const row of ordered) {
    if (front.some((other) => betterByValue(axes, other, row))) below.add(row);
    else front.push(row);
  }
  const certain = (q, p) => q !== p && surelyBetter(axes, q, p, systems[q] === systems[p]);
  return Array.from(rows, (row) => {
    // A row of the front surely dominates most rows; only the others are compared with all.
    const beats = (other) => certain(other, row);
    if (front.some(beats) || ordered.some(beats)) return "dominated";
    return below.has(row) ? "contested" : "front";
  });
}
