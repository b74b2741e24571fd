// Accuracy against what it costs, with the Pareto front (Figure 1 of Santhanam et al. 2023).
const MARKS = {
  front: { symbol: "circle", symbolSize: 11, z: 5 },
  contested: { symbol: "diamond", symbolSize: 14, z: 4 },
  dominated: { symbol: "circle", symbolSize: 8, z: 3 },
};
const MOST_BARS = 150;
const MOST_LABELS = 12;

function acrossLabel(name) {
  const { label, unit } = axisNamed(name);
  return name === "cost" ? unit : `${label}, ${unit}`;
}

function frontPoints({ state, groups, rows }) {
  const { of } = frontOfGroup(groups[0], state);
  const [x, y] = [column(state.across, state), column("accuracy", state)];
  return rows
    .filter((row) => of.has(row))
    .map((row) => ({
      ...content.rows[row],
      state: of.get(row),
      x: x.value[row],
      y: y.value[row],
      ends: [x.low[row], x.high[row], y.low[row], y.high[row]],
      family: familyOf(content.rows[row]),
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
  const measure = content.measures[view.state.measure];
  const points = frontPoints(view);
  if (!points.length) return { why: `No row that passes the filter has both an accuracy and a value of ${across}.` };
  if (points.length === 1) {
    const [{ x, y }] = points;
    const values = `${number(y, 1)} points ${measure}, ${number(x)} ${axisNamed(across).unit}`;
    return { why: `${nameOf(points[0])} alone has both: ${values}.` };
  }
  const marked = Object.fromEntries(Object.keys(MARKS).map((name) => [name, points.filter(({ state }) => state === name)]));
  marked.front.sort(byPlace);
  const barred = points.length <= MOST_BARS ? [...marked.front, ...marked.contested] : [];
  const widths = barred.flatMap(({ ends }) => ends.slice(0, 2)).filter((end) => end > 0);
  const heights = [...points.map(({ y }) => y), ...barred.flatMap(({ ends }) => ends.slice(2))].filter(Number.isFinite);
  const xAxis = axisOf([...points.map(({ x }) => x), ...widths], acrossLabel(across), style);
  const logX = xAxis.type === "log";
  const curves = sweepCurves(points);
  return {
    summary: frontSummary(marked, points, across),
    columns: [["system"], ["hardware profile"], [acrossLabel(across), "number"], [`${measure}, points`, "number"], ["front"]],
    rows: () =>
      points
        .sort((a, b) => b.y - a.y)
        .map(({ system, profile, x, y, state }) => [system, profile, number(x), number(y, 1), state]),
    legend: frontLegend(points, curves, style),
    option: plot(58, xAxis, axisOf([], `${measure}, points`, style, { nameGap: 40, ...room(heights) }), [
      lineThrough(marked.front, { color: style.quiet, width: 1.5 }, { step: "end" }),
      ...curves.map((curve) => lineThrough(curve, { color: style.look(curve[0].family).colour, width: 1.5, opacity: 0.8 })),
      intervalBars(barred, style),
      ...Object.keys(MARKS).map((name) => frontMarks(name, marked, points, style, logX)),
    ]),
  };
}

// Whole steps around all points and bars, so that none touches the frame.
function room(values) {
  const [low, high] = [smallest(values), largest(values)];
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

function frontLegend(points, curves, style) {
  const names = new Map(points.map(({ family, sweep }) => [family, sweep ? sweep.named : family]));
  const joined = curves.map(([point]) => point.family);
  return Array.from(names.keys())
    .sort()
    .map((family) => ({
      text: names.get(family),
      colour: style.look(family).colour,
      symbol: "circle",
      dash: joined.includes(family) ? "solid" : undefined,
    }));
}

// Points of sweeps are labelled by their values, all others by their names where these are few.
function frontMarks(name, marked, points, style, logX) {
  const drawn =
    name === "front"
      ? marked.front
      : thinned(marked[name], ({ x, y }) => [x, y], ({ family }) => style.look(family).colour, logX);
  const hollow = name === "dominated";
  const few = drawn.length <= MOST_LABELS && marked.front.length + drawn.length <= 2 * MOST_LABELS;
  const fewSwept = points.filter(({ sweep }) => sweep).length <= 2 * MOST_LABELS;
  const turn = points.every(({ x }) => x > 0) ? Math.log : (x) => x;
  const [low, high] = [smallest(points.map(({ x }) => turn(x))), largest(points.map(({ x }) => turn(x)))];
  const text = { color: style.ink, fontSize: 11, textBorderColor: style.back, textBorderWidth: 3 };
  return {
    type: "scatter",
    ...MARKS[name],
    label: { show: !hollow && few, formatter: "{b}", distance: 7, ...text },
    labelLayout: { hideOverlap: true, moveOverlap: "shiftY" },
    data: drawn.map(({ x, y, system, profile, sweep, family }) => ({
      value: [x, y],
      name: `${system}, ${profile}`,
      tip: `${system}, ${profile}\n${number(x)}; ${number(y, 1)} points\n${name}`,
      label: {
        // At the left edge a centred name would cover the axis.
        position: turn(x) - low < 0.2 * (high - low) ? [0, -15] : "top",
        ...(sweep && { show: fewSwept, formatter: () => sweep.label }),
      },
      itemStyle: {
        color: hollow ? style.back : style.look(family).colour,
        borderColor: hollow ? style.look(family).colour : style.ink,
        borderWidth: hollow ? 1.5 : 1,
      },
    })),
  };
}

function lineThrough(points, lineStyle, more) {
  return { type: "line", silent: true, symbol: "none", z: 2, lineStyle, data: points.map(({ x, y }) => [x, y]), ...more };
}

// The intervals that decide whether a row is contested.
function intervalBars(points, style) {
  return {
    type: "custom",
    silent: true,
    z: 2,
    clip: true,
    data: points.map(({ x, y, ends }) => [x, y, ...ends.map((end, at) => (at > 1 || end > 0 ? end : NaN))]),
    encode: { x: [0, 2, 3], y: 1 }, // the axis reaches the ends of the bars
    renderItem: (_, api) => {
      const [x, y, left, right, low, high] = [0, 1, 2, 3, 4, 5].map((at) => api.value(at));
      const bar = (from, to) => {
        const [[x1, y1], [x2, y2]] = [api.coord(from), api.coord(to)];
        return { type: "line", shape: { x1, y1, x2, y2 }, style: { stroke: style.quiet, lineWidth: 1, opacity: 0.45 } };
      };
      const across = left > 0 && right > 0 ? [bar([left, y], [right, y])] : [];
      const up = Number.isFinite(low) && Number.isFinite(high) ? [bar([x, low], [x, high])] : [];
      return { type: "group", children: [...across, ...up] };
    },
  };
}

pictures.push({
  id: "front",
  draw: drawFront,
  uses: ({ state }) => state.across,
  controls: ({ state }) => fill("across", acrossAxes().map((name) => [name, acrossLabel(name)]), state.across),
});
