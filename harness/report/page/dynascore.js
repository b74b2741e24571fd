// Dynascore (Ma et al. 2021; Santhanam et al. 2023): the page's copy of harness/analysis/dynascore.py, which says how and why.
(function (page) {
  "use strict";

  // Differences in accuracy of at most this share of the highest accuracy do not make a pair in the mode "reference".
  const SHARE = 1e-4;

  // Where `wanted` belongs in sorted numbers.
  function below(sorted, wanted) {
    let low = 0;
    let high = sorted.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (sorted[middle] < wanted) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  // rows: numbers, ascending (which is the order of ties); accuracy, value: columns over all rows.
  function reference(rows, accuracy, value) {
    const ordered = Array.from(rows).sort((a, b) => accuracy[a] - accuracy[b] || a - b);
    const highest = ordered.length ? accuracy[ordered[ordered.length - 1]] : 0;
    let sum = 0;
    let pairs = 0;
    for (let at = 1; at < ordered.length; at += 1) {
      const gained = Math.abs(accuracy[ordered[at]] - accuracy[ordered[at - 1]]);
      if (gained > SHARE * highest) {
        sum += Math.abs(value[ordered[at]] - value[ordered[at - 1]]) / gained;
        pairs += 1;
      }
    }
    return settled(pairs ? sum / pairs : null, pairs);
  }

  function robust(rows, accuracy, value, higher, cutoff) {
    const side = higher ? -1 : 1;
    const ordered = Array.from(rows).sort((a, b) => side * (value[a] - value[b]) || accuracy[b] - accuracy[a] || a - b);
    const levels = []; // accuracies of the rows that stand for a group, ascending
    const values = [];
    for (const row of ordered) {
      const own = accuracy[row];
      const at = below(levels, own);
      const near = (level) => level !== undefined && Math.abs(own - level) <= cutoff;
      if (near(levels[at]) || near(levels[at - 1])) continue;
      levels.splice(at, 0, own);
      values.splice(at, 0, value[row]);
    }
    const rates = [];
    for (let at = 1; at < levels.length; at += 1) {
      rates.push(Math.abs(values[at] - values[at - 1]) / Math.abs(levels[at] - levels[at - 1]));
    }
    rates.sort((a, b) => a - b);
    return settled(rates.length ? rates[(rates.length - 1) >> 1] : null, rates.length);
  }

  function settled(value, pairs) {
    if (pairs < 1) return { value: null, status: "no pair", pairs };
    if (value === 0) return { value: null, status: "no difference", pairs };
    return { value, status: "ok", pairs };
  }

  // The exchange rate of one metric, {name, value, higher, given}: its units for one point of accuracy.
  function rate(rows, accuracy, metric, mode, cutoff) {
    if (metric.given !== null && metric.given !== undefined) {
      return { value: metric.given, status: "given", pairs: 0 };
    }
    if (mode === "robust") return robust(rows, accuracy, metric.value, metric.higher, cutoff);
    return reference(rows, accuracy, metric.value);
  }

  // Each row's score; null where some rate is missing.  metrics: {value, higher, weight, rate}, each of weight > 0.
  function scores(rows, accuracy, weight, metrics) {
    if (metrics.some((metric) => metric.rate.value === null)) return null;
    const made = new Float64Array(rows.length);
    for (let at = 0; at < rows.length; at += 1) {
      let score = weight * accuracy[rows[at]];
      for (const metric of metrics) {
        const side = metric.higher ? 1 : -1;
        score += (side * metric.weight * metric.value[rows[at]]) / metric.rate.value;
      }
      made[at] = score;
    }
    return made;
  }

  // Ranks by score, best first; equal scores share the better rank (1, 2, 2, 4).
  function ranks(values) {
    const ordered = Array.from(values.keys()).sort((a, b) => values[b] - values[a] || a - b);
    const made = new Int32Array(values.length);
    ordered.forEach((place, at) => {
      const before = ordered[at - 1];
      made[place] = at && values[before] === values[place] ? made[before] : at + 1;
    });
    return { ranks: made, order: ordered };
  }

  page.dynascore = { rate, scores, ranks };
})((window.harnessPage = window.harnessPage || {}));
