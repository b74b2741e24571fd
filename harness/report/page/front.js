// The Pareto front with intervals: the page's copy of harness/pareto.py, which says how and why.
(function (page) {
  "use strict";

  const BETTER = 1;
  const WORSE = -1;
  const EQUAL = 0;
  const UNDECIDED = 2;
  const CODES = { b: BETTER, w: WORSE, e: EQUAL, u: UNDECIDED };

  // How q compares with p on an axis {value, low, high, higher, relation}; `same`: they are of one system.
  function relation(axis, q, p, same) {
    if (axis.relation) {
      const known = axis.relation(q, p);
      if (known !== undefined) return CODES[known];
    }
    const bare = Number.isNaN(axis.low[q]) && Number.isNaN(axis.high[q]) && Number.isNaN(axis.low[p]) &&
      Number.isNaN(axis.high[p]);
    if (axis.value[q] === axis.value[p] && (bare || same)) return EQUAL;
    const end = (ends, row) => (Number.isNaN(ends[row]) ? axis.value[row] : ends[row]);
    const under = end(axis.high, q) < end(axis.low, p);
    const over = end(axis.low, q) > end(axis.high, p);
    if (!under && !over) return UNDECIDED;
    return over === axis.higher ? BETTER : WORSE;
  }

  function surely(axes, q, p, same) {
    let better = false;
    for (const axis of axes) {
      const found = relation(axis, q, p, same);
      if (found === WORSE || found === UNDECIDED) return false;
      if (found === BETTER) better = true;
    }
    return better;
  }

  function byValue(axes, q, p) {
    let better = false;
    for (const axis of axes) {
      const gained = axis.higher ? axis.value[q] - axis.value[p] : axis.value[p] - axis.value[q];
      if (gained < 0) return false;
      if (gained > 0) better = true;
    }
    return better;
  }

  // Each row's state, "front", "contested" or "dominated", in the order of `rows`; all have a value on each axis.
  function states(rows, axes, systemOf) {
    const side = (axis, row) => (axis.higher ? -axis.value[row] : axis.value[row]);
    const ordered = Array.from(rows).sort((a, b) => {
      for (const axis of axes) {
        const found = side(axis, a) - side(axis, b);
        if (found) return found;
      }
      return a - b;
    });
    // Whoever dominates stands before whom it dominates; domination by value passes on, so the front is enough.
    const front = [];
    const below = new Set();
    for (const row of ordered) {
      if (front.some((other) => byValue(axes, other, row))) below.add(row);
      else front.push(row);
    }
    const certain = (q, p) => q !== p && surely(axes, q, p, systemOf(q) === systemOf(p));
    return Array.from(rows, (row) => {
      // Most are surely dominated by a row of the front; only the others are held against all.
      if (front.some((other) => certain(other, row)) || ordered.some((other) => certain(other, row))) {
        return "dominated";
      }
      return below.has(row) ? "contested" : "front";
    });
  }

  page.front = { states, relation, surely, byValue };
})((window.harnessPage = window.harnessPage || {}));
