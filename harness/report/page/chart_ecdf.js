// How latencies are spread: for each system, and of one row (in its evidence).
const MOST_LINES = 12;
const BINS = 24;

// A row's latency in ms that a share of its samples stay within.
function quantile({ quantiles }, share) {
  return quantiles[Math.round(share * (quantiles.length - 1))] * 1e3;
}

function ecdfRows(view) {
  return bestOfSystems(rowsOf(view).filter((row) => row.quantiles), view, MOST_LINES);
}

function drawEcdf(view, style) {
  const rows = ecdfRows(view);
  if (!rows.length) {
    return { why: "No row that passes the filter has stored samples of single queries, so there is no distribution." };
  }
  const ends = rows.flatMap((row) => [quantile(row, 0), quantile(row, 1)]);
  const names = rows.map(labelOf).join("; ");
  if (unique(ends).length < 2) return { why: `All samples took ${number(ends[0])} ms (${names}).` };
  const medians = rows.slice(0, 6).map((row) => `${labelOf(row)} median ${number(quantile(row, 0.5))} ms`);
  const valuesAt = (row) => Object.values(shares).map((share) => quantile(row, share));
  const y = axisOf([], "samples within, %", style, { nameGap: 36, min: 0, max: 100 });
  const line = (row) => ({ ...ecdfLine(row, style.look(row.system)), name: labelOf(row), triggerLineEvent: true });
  const shares = { minimum: 0, median: 0.5, "90 %": 0.9, "98 %": 0.98, maximum: 1 };
  return {
    summary: `Share of samples within a latency, for the best-ranked row of each system: ${medians.join("; ")}.`,
    columns: [["system"], ["hardware profile"], ...Object.keys(shares).map((share) => [`${share}, ms`, "number"])],
    rows: () => rows.map((row) => [row.system, row.profile, ...valuesAt(row).map((value) => number(value))]),
    legend: rows.map((row) => ({ text: labelOf(row), ...style.look(row.system), symbol: null })),
    option: plot({ left: 52 }, axisOf(ends, "latency, ms", style), y, rows.map(line)),
  };
}

function ecdfLine({ quantiles }, { colour, dash }) {
  const data = quantiles.map((seconds, at) => [seconds * 1e3, (100 * at) / (quantiles.length - 1)]);
  const lineStyle = { color: colour, type: dash, width: 2 };
  return { type: "line", symbol: "none", data, lineStyle, itemStyle: { color: colour } };
}

// The share of samples in equal bins, from the quantiles; equal on a logarithmic axis if `log`.
function binsOf(quantiles, log) {
  const [turn, back] = log ? [Math.log, Math.exp] : [Number, Number];
  const points = quantiles.map((seconds) => turn(seconds * 1e3));
  const last = points.length - 1;
  const edge = (at) => points[0] + ((points[last] - points[0]) * at) / BINS;
  const below = (at) => {
    if (at === 0 || at === BINS) return at / BINS;
    const next = points.findIndex((point) => point > edge(at));
    return (next - 1 + (edge(at) - points[next - 1]) / (points[next] - points[next - 1])) / last;
  };
  const bin = (at) => [back(edge(at)), back(edge(at + 1)), 100 * (below(at + 1) - below(at))];
  return Array.from({ length: BINS }, (_, at) => bin(at));
}

// Draw the two pictures of one row's samples into the boxes of its evidence.
function drawDistribution(row, dialog) {
  return Array.from(dialog.querySelectorAll("[data-chart]"), (box) => {
    const style = styleOf(view);
    const [colour] = COLOURS;
    const histogram = box.dataset.chart === "histogram";
    const x = axisOf(row.quantiles.map((seconds) => seconds * 1e3), "latency, ms", style);
    const [heading, max] = histogram ? ["samples, %", null] : ["samples within, %", 100];
    const y = axisOf([], heading, style, { nameGap: 32, min: 0, max });
    const series = histogram ? bars(binsOf(row.quantiles, x.type === "log"), colour, style) : ecdfLine(row, { colour });
    const chart = window.echarts.init(box, null, { renderer: "svg" });
    setOption(chart, { ...plot({ left: 48, right: 16 }, x, y, [series]), tooltip: { show: false } }, style);
    return chart;
  });
}

function bars(bins, colour, style) {
  const renderItem = (_, api) => {
    const [x, y] = api.coord([api.value(0), api.value(2)]);
    const [right, bottom] = api.coord([api.value(1), 0]);
    const shape = { x, y, width: Math.max(1, right - x - 1), height: Math.max(0, bottom - y) };
    return { type: "rect", shape, style: { fill: colour, stroke: style.back } };
  };
  return { type: "custom", data: bins, encode: { x: [0, 1], y: 2 }, renderItem };
}

pictures.push({ id: "ecdf", draw: drawEcdf, uses: (view) => ecdfRows(view).map((row) => row.number) });
