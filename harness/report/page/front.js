// The Pareto front with intervals: the page's copy of harness/analysis/pareto_front.py, which says how and why.
(function (page) {
  "use strict";

  const BETTER = 1;
  const WORSE = -1;
  const EQUAL = 0;
  const UNDECIDED = 2;
  const CODES = { b: BETTER, w: WORSE, e: EQUAL, u: UNDECIDED };

  // A column {value, low, high}, turned so that larger is better.  `relations`, where there are any: {run, pairs},
  // the number of each row's run (-1: none) and how runs stand to one another, pair by pair.
  function turned(column, higher, relations) {
    const many = column.value.length;
    const made = { value: column.value, worst: column.value, best: column.value, bounded: new Uint8Array(many) };
    const side = higher ? 1 : -1;
    for (const name of ["value", "worst", "best"]) made[name] = new Float64Array(many);
    for (let row = 0; row < many; row += 1) {
      const value = column.value[row];
      const low = Number.isNaN(column.low[row]) ? value : column.low[row];
      const high = Number.isNaN(column.high[row]) ? value : column.high[row];
      made.value[row] = side * value;
      made.worst[row] = side * (higher ? low : high);
      made.best[row] = side * (higher ? high : low);
      made.bounded[row] = Number.isNaN(column.low[row]) && Number.isNaN(column.high[row]) ? 0 : 1;
    }
    if (relations) {
      made.run = relations.run;
      made.runs = Math.round(Math.sqrt(relations.pairs.length));
      made.signs = Int8Array.from(relations.pairs, (letter) => CODES[letter]);
    }
    return made;
  }

  // How q compares with p on an axis; `same`: they are of one system.
  function relation(axis, q, p, same) {
    if (axis.run && axis.run[q] >= 0 && axis.run[p] >= 0) return axis.signs[axis.run[q] * axis.runs + axis.run[p]];
    if (axis.value[q] === axis.value[p] && (same || (!axis.bounded[q] && !axis.bounded[p]))) return EQUAL;
    if (axis.worst[q] > axis.best[p]) return BETTER;
    return axis.best[q] < axis.worst[p] ? WORSE : UNDECIDED;
  }

  function surely(axes, q, p, same) {
    let better = false;
    for (let at = 0; at < axes.length; at += 1) {
      const found = relation(axes[at], q, p, same);
      if (found === WORSE || found === UNDECIDED) return false;
      if (found === BETTER) better = true;
    }
    return better;
  }

  function byValue(axes, q, p) {
    let better = false;
    for (let at = 0; at < axes.length; at += 1) {
      const gained = axes[at].value[q] - axes[at].value[p];
      if (gained < 0) return false;
      if (gained > 0) better = true;
    }
    return better;
  }

  // Each row's state, "front", "contested" or "dominated", in the order of `rows`; all have a value on each axis.
  // axes: of turned(); systems: the number of each row's system.
  function states(rows, axes, systems) {
    const ordered = Array.from(rows).sort((a, b) => {
      for (const axis of axes) {
        const found = axis.value[b] - axis.value[a];
        if (found) return found;
      }
      return a - b;
    });
    // Whoever dominates by value stands before whom it dominates; that passes on, so the front is enough to ask.
    const front = [];
    const below = new Set();
    for (const row of ordered) {
      if (front.some((other) => byValue(axes, other, row))) below.add(row);
      else front.push(row);
    }
    const certain = (q, p) => q !== p && surely(axes, q, p, systems[q] === systems[p]);
    return Array.from(rows, (row) => {
      // Most are surely dominated by a row of the front; only the others are held against all.
      if (front.some((other) => certain(other, row)) || ordered.some((other) => certain(other, row))) {
        return "dominated";
      }
      return below.has(row) ? "contested" : "front";
    });
  }

  page.front = { turned, states, relation, surely, byValue };
})((window.harnessPage = window.harnessPage || {}));
