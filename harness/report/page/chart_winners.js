// The winner at each weighting (Figure 2 of Santhanam et al. 2023): a triangle of all weights, and the chosen weights.
const HEIGHT = Math.sqrt(3) / 2;
const CORNERS = [
  ["all on accuracy", { position: "top" }],
  ["all on cost", { position: [-16, 8], align: "left" }],
  ["all on latency", { position: [16, 8], align: "right" }],
];
const OUTSIDE = -0.03; // a click that misses the triangle by more chooses nothing

// Accuracy above, cost left, latency right.
function trianglePoint([accuracy, , latency]) {
  return [latency + accuracy / 2, accuracy * HEIGHT];
}

function weightsAt([x, y]) {
  const accuracy = y / HEIGHT;
  const latency = x - accuracy / 2;
  const parts = [accuracy, 1 - accuracy - latency, latency];
  if (parts.some((part) => part < OUTSIDE)) return null;
  const inside = parts.map((part) => Math.max(0, part));
  const sum = inside.reduce((total, part) => total + part, 0);
  return balanced(inside.map((part) => (part / sum) * WHOLE));
}

// The regions of a group, the largest first, as [{row, polygon, share, equal}]; or a sentence.
function winnerRegions(group, state) {
  const { rows } = members(group, AXES, state);
  const rates = METRICS.map((axis) => groupRate(group, rows, AXES, axis, state));
  if (!rows.length) return "No row has an accuracy, a cost and a latency.";
  const lacking = METRICS.findIndex((axis, at) => rates[at].value === null);
  if (lacking >= 0) return `No map: ${whyNoRate({ name: METRICS[lacking], rate: rates[lacking] })}.`;
  const value = (axis, row) => axisValues(axis, state).value[row];
  const losses = (row) => METRICS.map((axis, at) => -value(axis, row) / rates[at].value);
  const terms = rows.map((row) => [value("accuracy", row), ...losses(row)]);
  return regionsOf(terms)
    .map((region) => ({ ...region, row: content.rows[rows[region.row]], share: area(region.polygon) / area(TRIANGLE) }))
    .sort((a, b) => b.share - a.share);
}

function drawWinners({ state, groups }, style) {
  const key = ["winners", groups[0].number, state.measure, state.snapshot, state.mode, state.rates];
  const regions = remembered(key, () => winnerRegions(groups[0], state));
  if (typeof regions === "string") return { why: regions };
  if (regions.length === 1) return { why: `${nameOf(regions[0].row)}${equalTo(regions[0])} wins at all weights.` };
  const names = regions.slice(0, 6).map((each) => `${nameOf(each.row)}${equalTo(each)} ${number(each.share * 100)} %`);
  const more = regions.length > 6 ? ", and others" : "";
  const circle = "The circle marks the chosen weights; a click chooses others.";
  return {
    summary: `Winners by share of all weights: ${names.join(", ")}${more}. ${circle}`,
    columns: [["system"], ["hardware profile"], ["share of all weights, %", "number"]],
    rows: () => regions.map((each) => [each.row.system + equalTo(each), each.row.profile, number(each.share * 100)]),
    legend: regions.slice(0, 12).map((region, at) => ({
      text: `${at + 1} ${labelOf(region.row)}${equalTo(region)}`,
      colour: style.look(region.row.system).colour,
      symbol: "rect",
    })),
    option: triangle(regions, state.weights, style),
  };
}

// Rows of equal terms win together; the first of them is named.
function equalTo({ equal }) {
  return equal ? ` and ${equal} equal` : "";
}

function triangle(regions, weights, style) {
  const side = Math.max(80, Math.min(style.width - 40, (style.height - 64) / HEIGHT));
  const axis = { show: false, min: 0, max: 1 };
  const bold = { show: true, formatter: "{b}", color: style.ink, fontSize: 12, fontWeight: "bold" };
  const corners = CORNERS.map(([name, label], at) => ({ name, value: trianglePoint(TRIANGLE[at]), label }));
  const ring = { color: "transparent", borderColor: style.ink, borderWidth: 3 };
  const here = [trianglePoint(weights.map((weight) => weight / WHOLE))];
  return {
    grid: { left: (style.width - side) / 2, top: 28, width: side, height: side * HEIGHT },
    xAxis: axis,
    yAxis: { ...axis, max: HEIGHT },
    series: [
      regionShapes(regions, style),
      { type: "scatter", silent: true, symbolSize: 1, data: corners, label: bold },
      { type: "scatter", silent: true, z: 9, symbol: "circle", symbolSize: 16, itemStyle: ring, data: here },
    ],
  };
}

function regionShapes(regions, style) {
  const tip = ({ row, share }) => `${labelOf(row)}\nwins at ${number(share * 100)} % of all weights`;
  const data = regions.map((region) => ({ value: [0.5, 0.3], tip: tip(region) }));
  const font = { fill: style.ink, stroke: style.back, lineWidth: 2, fontSize: 11, lineHeight: 15 };
  const renderItem = ({ dataIndex }, api) => {
    const { row, polygon, share } = regions[dataIndex];
    const points = polygon.map((corner) => api.coord(trianglePoint(corner)));
    const [xs, ys] = [0, 1].map((axis) => points.map((point) => point[axis]));
    const [x, y] = [xs, ys].map((values) => values.reduce((sum, value) => sum + value, 0) / values.length);
    const wide = Math.max(...xs) - Math.min(...xs) > 110 && Math.max(...ys) - Math.min(...ys) > 40 && share > 0.06;
    const place = share > 0.004 ? String(dataIndex + 1) : "";
    const text = wide ? `${place} ${row.system}\n${row.profile}` : place;
    const colours = { fill: style.look(row.system).colour, fillOpacity: 0.4, stroke: style.back, lineWidth: 1.5 };
    const label = { ...font, x, y, align: "center", verticalAlign: "middle", text };
    const children = [
      { type: "polygon", shape: { points }, style: colours },
      { type: "text", silent: true, style: label },
    ];
    return { type: "group", children };
  };
  return { type: "custom", data, renderItem };
}

pictures.push({
  id: "winners",
  draw: drawWinners,
  uses: ({ state: { mode, rates, weights } }) => [mode, rates, weights],
  clicked: (event, chart) => {
    const weights = weightsAt(chart.convertFromPixel({ gridIndex: 0 }, [event.offsetX, event.offsetY]));
    if (weights) change({ weights });
  },
});
