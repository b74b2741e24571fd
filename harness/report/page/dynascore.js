// Dynascore (Ma et al. 2021; Santhanam et al. 2023): the page's copy of harness/analysis/dynascore.py, which says why.

// Differences in accuracy of at most this share of the highest accuracy make no pair in the mode "reference".
const SHARE = 1e-4;

// rows: numbers, ascending, which breaks ties; accuracy, value: columns over all rows.
function referenceRate(rows, accuracy, value) {
  const ordered = Array.from(rows).sort((a, b) => accuracy[a] - accuracy[b] || a - b);
  const highest = ordered.length ? accuracy[ordered[ordered.length - 1]] : 0;
  const rates = [];
  ordered.slice(1).forEach((row, at) => {
    const gained = accuracy[row] - accuracy[ordered[at]];
    if (gained > SHARE * highest) rates.push(Math.abs(value[row] - value[ordered[at]]) / gained);
  });
  return settled(rates.reduce((sum, rate) => sum + rate, 0) / rates.length, rates.length);
}

function robustRate(rows, accuracy, { value, higher }, cutoff) {
  const side = higher ? -1 : 1;
  const ordered = Array.from(rows).sort((a, b) => side * (value[a] - value[b]) || accuracy[b] - accuracy[a] || a - b);
  const kept = []; // one row for each accuracy that can be told apart
  for (const row of ordered) {
    if (!kept.some((other) => Math.abs(accuracy[row] - accuracy[other]) <= cutoff)) kept.push(row);
  }
  kept.sort((a, b) => accuracy[a] - accuracy[b]);
  const rates = kept
    .slice(1)
    .map((row, at) => Math.abs(value[row] - value[kept[at]]) / (accuracy[row] - accuracy[kept[at]]))
    .sort((a, b) => a - b);
  return settled(rates[(rates.length - 1) >> 1], rates.length);
}

function settled(value, pairs) {
  if (pairs < 1) return { value: null, status: "no pair", pairs };
  if (value === 0) return { value: null, status: "no difference", pairs };
  return { value, status: "ok", pairs };
}

// The exchange rate of one metric, {value, higher, given}: its units for one point of accuracy.
function exchangeRate(rows, accuracy, metric, mode, cutoff) {
  if (metric.given !== null) return { value: metric.given, status: "given", pairs: 0 };
  if (mode === "robust") return robustRate(rows, accuracy, metric, cutoff);
  return referenceRate(rows, accuracy, metric.value);
}

// Each row's score; null if an exchange rate is missing.  metrics: {value, higher, weight, rate}.
function scores(rows, accuracy, weight, metrics) {
  if (metrics.some((metric) => metric.rate.value === null)) return null;
  return Float64Array.from(rows, (row) =>
    metrics.reduce((score, metric) => {
      const side = metric.higher ? 1 : -1;
      return score + (side * metric.weight * metric.value[row]) / metric.rate.value;
    }, weight * accuracy[row]),
  );
}

// Ranks by score, best first; equal scores share the better rank (1, 2, 2, 4).
function ranksOf(values) {
  const ordered = Array.from(values.keys()).sort((a, b) => values[b] - values[a] || a - b);
  const ranks = new Int32Array(values.length);
  ordered.forEach((place, at) => {
    const before = ordered[at - 1];
    ranks[place] = at && values[before] === values[place] ? ranks[before] : at + 1;
  });
  return ranks;
}
