// Who wins at which weights: a score is linear in the weights, so each winner's region of the triangle is a polygon.
const TRIANGLE = [
  [1, 0, 0],
  [0, 1, 0],
  [0, 0, 1],
];
const NEAR = 1e-9;
const MOST_REGIONS = 200; // more cannot be told apart

function dot(weights, terms) {
  return weights[0] * terms[0] + weights[1] * terms[1] + weights[2] * terms[2];
}

// The part of a polygon where `gain` (a linear form of the weights) is not negative.
function clip(polygon, gain) {
  return polygon.flatMap((here, at) => {
    const next = polygon[(at + 1) % polygon.length];
    const [a, b] = [dot(here, gain), dot(next, gain)];
    const crossed = (a > 0 && b < 0) || (a < 0 && b > 0);
    const crossing = () => here.map((weight, axis) => weight + (a / (a - b)) * (next[axis] - weight));
    return [...(a >= 0 ? [here] : []), ...(crossed ? [crossing()] : [])];
  });
}

// The first row of the highest score, and that score.
function winnerAt(weights, terms) {
  const better = (best, own, at) => {
    const score = dot(weights, own);
    return score > best[1] ? [at, score] : best;
  };
  return terms.reduce(better, [0, -Infinity]);
}

// terms: of each row, what its score adds for accuracy, cost and latency at a weight of 1.
// Gives [{row: place in terms, polygon: [[accuracy, cost, latency], ...], equal: number of other rows of these terms}].
// Exact: at every corner of every region the winner among all rows joins the rivals, until no corner has a new one.
function regionsOf(terms) {
  if (!terms.length) return [];
  const rivals = new Set(TRIANGLE.map((corner) => winnerAt(corner, terms)[0]));
  for (;;) {
    const before = rivals.size;
    const regions = Array.from(rivals, (row) => ({ row, polygon: regionAmong(row, rivals, terms) }));
    for (const { row, polygon } of regions) {
      for (const corner of polygon) {
        const [winner, score] = winnerAt(corner, terms);
        const own = dot(corner, terms[row]);
        if (score - own > NEAR * Math.max(1, Math.abs(own))) rivals.add(winner);
      }
    }
    if (rivals.size === before || rivals.size > MOST_REGIONS) return withoutTwins(regions, terms);
  }
}

function regionAmong(row, rivals, terms) {
  let polygon = TRIANGLE;
  for (const other of rivals) {
    const gain = terms[row].map((term, axis) => term - terms[other][axis]);
    if (other !== row) polygon = clip(polygon, gain);
  }
  return polygon;
}

// Rows of equal terms have one region, under the name of the first.
function withoutTwins(regions, terms) {
  const seen = new Map();
  for (const region of regions) {
    const key = terms[region.row].join(" ");
    if (!seen.has(key) && area(region.polygon) >= 1e-12) seen.set(key, region);
  }
  const many = (key) => terms.filter((other) => other.join(" ") === key).length;
  return Array.from(seen, ([key, region]) => ({ ...region, equal: many(key) - 1 }));
}

function area(polygon) {
  const twice = polygon.reduce((sum, here, at) => {
    const next = polygon[(at + 1) % polygon.length];
    return sum + here[1] * next[2] - next[1] * here[2];
  }, 0);
  return Math.abs(twice) / 2;
}
