// Accuracy against what it costs, with the Pareto front (Figure 1 of Santhanam et al. 2023).
// The larger mark keeps its name where two names would overlap.
const MARKS = {
  front: { symbol: "circle", symbolSize: 13, z: 5 },
  contested: { symbol: "diamond", symbolSize: 12, z: 4 },
  dominated: { symbol: "circle", symbolSize: 8, z: 3 },
};
const MOST_BARS = 150;
const MOST_LABELS = 12;

function frontPoints({ state, groups, rows }, style) {
  const { of } = frontOfGroup(groups[0], state);
  const [x, y] = [axisValues(state.across, state), axisValues("accuracy", state)];
  return rows
    .filter((row) => of.has(row))
    .map((row) => ({
      ...content.rows[row],
      state: of.get(row),
      x: x.value[row],
      y: y.value[row],
      ends: [x.low[row], x.high[row], y.low[row], y.high[row]],
      colour: style.look(familyOf(content.rows[row])).colour,
    }));
}

function byPlace(a, b) {
  return a.x - b.x || a.y - b.y;
}

// The points of each sweep on each hardware profile, in order of cost.
function sweepCurves(points) {
  const names = unique(points.filter(({ sweep }) => sweep).map(({ sweep }) => sweep.curve));
  const curves = names.map((name) => points.filter(({ sweep }) => sweep?.curve === name).sort(byPlace));
  return curves.filter((curve) => curve.length > 1);
}

function drawFront(view, style) {
  const { across } = view.state;
  const { heading, unit } = axisNamed(across);
  const measure = content.measures[view.state.measure];
  const accuracy = `${measure}, points`;
  const points = frontPoints(view, style);
  if (!points.length) return { why: `No row that passes the filter has both an accuracy and a value of ${across}.` };
  if (points.length === 1) {
    const [{ x, y }] = points;
    return { why: `${nameOf(points[0])} alone has both: ${measure} ${number(y, 1)} points, ${number(x)} ${unit}.` };
  }
  const of = (name) => points.filter(({ state }) => state === name);
  const marked = { front: of("front").sort(byPlace), contested: of("contested"), dominated: of("dominated") };
  const barred = points.length <= MOST_BARS ? [...marked.front, ...marked.contested] : [];
  const widths = barred.flatMap(({ ends }) => ends.slice(0, 2)).filter((end) => end > 0);
  const heights = [...points.map(({ y }) => y), ...barred.flatMap(({ ends }) => ends.slice(2))].filter(Number.isFinite);
  const xAxis = axisOf([...points.map(({ x }) => x), ...widths], heading, style);
  const curves = sweepCurves(points);
  return {
    summary: frontSummary(marked, points, across),
    columns: [["system"], ["hardware profile"], [heading, "number"], [accuracy, "number"], ["front"]],
    rows: () =>
      points
        .sort((a, b) => b.y - a.y)
        .map(({ system, profile, x, y, state }) => [system, profile, number(x), number(y, 1), state]),
    legend: frontLegend(points, curves),
    option: plot({ left: 58, right: 40 }, xAxis, axisOf([], accuracy, style, { nameGap: 40, ...room(heights) }), [
      lineThrough(marked.front, { color: style.quiet, width: 1.5 }, { step: "end" }),
      ...curves.map((curve) => lineThrough(curve, { color: curve[0].colour, width: 1.5, opacity: 0.8 })),
      intervalBars(barred, style),
      ...Object.keys(MARKS).map((name) => frontMarks(name, marked, points, style, xAxis.type === "log")),
    ]),
  };
}

// Whole steps around all points and bars, so that none touches the frame.
function room(values) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const step = high - low > 8 ? 5 : 1;
  const min = Math.floor((low - step / 5) / step) * step;
  return { min: Math.max(0, min), max: Math.ceil((high + step / 5) / step) * step };
}

function frontSummary({ front, contested, dominated }, points, across) {
  const names = front.slice(0, 6).map(nameOf).join(", ") || "none that passes the filter";
  const more = front.length > 6 ? " and others" : "";
  const doubt = contested.length
    ? `; ${contested.length} contested (◆): worse by value, but the intervals do not say so`
    : "";
  return `Front of accuracy and ${across} (●): ${names}${more}${doubt}; ${dominated.length} dominated (○).`;
}

function frontLegend(points, curves) {
  const joined = curves.map(([point]) => familyOf(point));
  const families = new Map(points.map((point) => [familyOf(point), point]));
  return Array.from(families.keys()).sort().map((family) => {
    const { sweep, colour } = families.get(family);
    return { text: sweep ? sweep.named : family, colour, symbol: "circle", dash: joined.includes(family) && "solid" };
  });
}

// Points of sweeps are labelled by their values, all others by their names where these are few.
function frontMarks(name, { front, [name]: marked }, points, style, logX) {
  const hollow = name === "dominated";
  const drawn = name === "front" ? front : thinned(marked, ({ x, y }) => [x, y], ({ colour }) => colour, logX);
  const few = drawn.length <= MOST_LABELS && front.length + drawn.length <= 2 * MOST_LABELS;
  const fewSwept = points.filter(({ sweep }) => sweep).length <= 2 * MOST_LABELS;
  const across = ({ x }) => (logX ? Math.log(x) : x);
  const [left, right] = [Math.min(...points.map(across)), Math.max(...points.map(across))];
  const mark = (point) => ({
    value: [point.x, point.y],
    name: labelOf(point),
    tip: `${labelOf(point)}\n${number(point.x)}; ${number(point.y, 1)} points\n${name}`,
    label: {
      // At the left edge a centred name would cover the axis.
      position: across(point) - left < 0.2 * (right - left) ? [0, -15] : "top",
      ...(point.sweep && { show: fewSwept, formatter: () => point.sweep.label }),
    },
    itemStyle: hollow
      ? { color: style.back, borderColor: point.colour, borderWidth: 1.5 }
      : { color: point.colour, borderColor: style.ink, borderWidth: 1 },
  });
  const text = { color: style.ink, fontSize: 11, textBorderColor: style.back, textBorderWidth: 3 };
  const label = { show: !hollow && few, formatter: "{b}", distance: 7, ...text };
  const labelLayout = { hideOverlap: true, moveOverlap: "shiftY" };
  return { type: "scatter", ...MARKS[name], label, labelLayout, data: drawn.map(mark) };
}

function lineThrough(points, lineStyle, more) {
  const data = points.map(({ x, y }) => [x, y]);
  return { type: "line", silent: true, symbol: "none", z: 2, lineStyle, data, ...more };
}

// The intervals that decide whether a row is contested.
function intervalBars(points, style) {
  const data = points.map(({ x, y, ends }) => [x, y, ...ends.map((end, at) => (at > 1 || end > 0 ? end : NaN))]);
  const encode = { x: [0, 2, 3], y: 1 }; // the axis reaches the ends of the bars
  const renderItem = (_, api) => {
    const [x, y, left, right, low, high] = [0, 1, 2, 3, 4, 5].map((at) => api.value(at));
    const bar = (from, to) => {
      const [[x1, y1], [x2, y2]] = [api.coord(from), api.coord(to)];
      return { type: "line", shape: { x1, y1, x2, y2 }, style: { stroke: style.quiet, lineWidth: 1, opacity: 0.45 } };
    };
    const across = left > 0 && right > 0 ? [bar([left, y], [right, y])] : [];
    const up = Number.isFinite(low) && Number.isFinite(high) ? [bar([x, low], [x, high])] : [];
    return { type: "group", children: [...across, ...up] };
  };
  return { type: "custom", silent: true, z: 2, clip: true, data, encode, renderItem };
}

pictures.push({
  id: "front",
  draw: drawFront,
  uses: ({ state }) => state.across,
  controls: ({ state }) => fill("across", acrossAxes(), state.across),
});
