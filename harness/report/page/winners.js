// Who wins at which weights: a score is linear in the weights, so each winner's region of the triangle is a polygon.
(function (page) {
  "use strict";

  const TRIANGLE = [
    [1, 0, 0],
    [0, 1, 0],
    [0, 0, 1],
  ];
  const NEAR = 1e-9;
  const MOST = 200; // regions; more cannot be told apart

  function dot(weights, terms) {
    return weights[0] * terms[0] + weights[1] * terms[1] + weights[2] * terms[2];
  }

  // The part of a polygon where `gain` (a linear form of the weights) is not negative.
  function clip(polygon, gain) {
    const kept = [];
    for (let at = 0; at < polygon.length; at += 1) {
      const here = polygon[at];
      const next = polygon[(at + 1) % polygon.length];
      const [a, b] = [dot(here, gain), dot(next, gain)];
      if (a >= 0) kept.push(here);
      if ((a > 0 && b < 0) || (a < 0 && b > 0)) {
        const share = a / (a - b);
        kept.push(here.map((weight, axis) => weight + share * (next[axis] - weight)));
      }
    }
    return kept;
  }

  function best(weights, terms) {
    let found = 0;
    let highest = -Infinity;
    for (let at = 0; at < terms.length; at += 1) {
      const score = dot(weights, terms[at]);
      if (score > highest) {
        highest = score;
        found = at;
      }
    }
    return [found, highest];
  }

  // terms: of each row, what its score adds for accuracy, cost and latency at a weight of 1.
  // Gives [{row: place in terms, polygon: [[accuracy, cost, latency], ...], equal: number of other rows of these terms}].  Exact: every corner of every region is
  // looked at, and whoever wins there against those that were known joins them.
  function regions(terms) {
    if (!terms.length) return [];
    const known = new Set(TRIANGLE.map((corner) => best(corner, terms)[0]));
    for (;;) {
      const made = [];
      const before = known.size;
      const rivals = Array.from(known);
      for (const row of rivals) {
        let polygon = TRIANGLE;
        for (const other of rivals) {
          if (other === row || polygon.length < 3) continue;
          polygon = clip(
            polygon,
            terms[row].map((term, axis) => term - terms[other][axis]),
          );
        }
        if (polygon.length >= 3) made.push({ row, polygon });
      }
      for (const { row, polygon } of made) {
        for (const corner of polygon) {
          const [winner, score] = best(corner, terms);
          const own = dot(corner, terms[row]);
          if (score - own > NEAR * Math.max(1, Math.abs(own))) known.add(winner);
        }
      }
      if (known.size === before || known.size > MOST) return withoutTwins(made, terms);
    }
  }

  // Rows of the very same terms have one region; the first of them stands for all.
  function withoutTwins(made, terms) {
    const seen = new Map();
    for (const each of made) {
      const key = terms[each.row].join(" ");
      if (!seen.has(key) && area(each.polygon) >= 1e-12) seen.set(key, each);
    }
    return Array.from(seen, ([key, each]) => ({
      ...each,
      equal: terms.filter((other) => other.join(" ") === key).length - 1,
    }));
  }

  function area(polygon) {
    let twice = 0;
    for (let at = 0; at < polygon.length; at += 1) {
      const [here, next] = [polygon[at], polygon[(at + 1) % polygon.length]];
      twice += here[1] * next[2] - next[1] * here[2];
    }
    return Math.abs(twice) / 2;
  }

  page.winners = { regions, area };
})((window.harnessPage = window.harnessPage || {}));
