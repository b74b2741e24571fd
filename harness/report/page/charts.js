// The builder of all pictures.  Each has a sentence that says what it shows, and a table of its values.

// Okabe and Ito's colours; yellow last and darker, as it is faint on white.
const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#B8A800"];
const DASHES = ["solid", [8, 4], [2, 3], [10, 3, 2, 3]];
const SYMBOLS = ["circle", "rect", "triangle", "diamond", "roundRect"];
const SWATCHES = {
  circle: "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0",
  rect: "M-4 -4H4V4H-4Z",
  triangle: "M0 -5L5 4H-5Z",
  diamond: "M0 -6L6 0L0 6L-6 0Z",
  roundRect: "M-5 -3H5V3H-5Z",
  cross: "M-5 -4L-4 -5L0 -1L4 -5L5 -4L1 0L5 4L4 5L0 1L-4 5L-5 4L-1 0Z",
};
const MOST_TABLE_ROWS = 500;
const MOST_NAMES = 24; // of a legend
const FEW = 200; // points that are all drawn
const MOST_POINTS = 400;
const SQUARES = 40; // to a side of a picture
const SEVERAL = "Choose one comparison group: rows of different groups are not compared.";
// {id, draw(view, style)}, and optionally uses(view): choices that it depends on besides the rows; controls(view);
// clicked(event, chart).  draw returns {option, summary, columns, rows(), legend}, or {why}: a sentence in its place.
const pictures = [];
const PARTS = { box: ".chart", why: ".why-not", legend: ".legend", caption: ".summary-line", table: ".as-table" };
let frame = 0;

function buildPictures() {
  for (const picture of pictures) {
    const figure = find(`figure-${picture.id}`);
    figure.append(find("picture").content.cloneNode(true));
    picture.figure = figure;
    for (const [name, selector] of Object.entries(PARTS)) picture[name] = figure.querySelector(selector);
    picture.box.id = `chart-${picture.id}`;
    picture.title = figure.querySelector("figcaption").textContent;
    picture.table.addEventListener("toggle", () => fillTable(picture));
  }
  window.addEventListener("resize", () => {
    window.cancelAnimationFrame(frame);
    frame = window.requestAnimationFrame(redrawPictures);
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawPictures);
}

// After the table.  All at once when the page opens, so that a capture has no empty box; later one a frame, so that a
// slider is never held up by all of them.
function showPictures(view) {
  window.cancelAnimationFrame(frame);
  for (const picture of pictures) picture.controls?.(view);
  if (pictures.every((picture) => picture.key === undefined)) redrawPictures();
  else frame = window.requestAnimationFrame(drawNext);
}

function drawNext() {
  const next = pictures.find((picture) => picture.key !== keyOf(picture));
  if (!next) return fitPictures();
  drawPicture(next);
  frame = window.requestAnimationFrame(drawNext);
}

function redrawPictures() {
  window.cancelAnimationFrame(frame);
  pictures.forEach(drawPicture);
  fitPictures();
}

// A picture next to one that became a sentence, or that was one, has another width now.
function fitPictures() {
  pictures.filter(({ drawn, chart, box }) => drawn && chart.getWidth() !== box.clientWidth).forEach(drawPicture);
}

// Changes when the picture does.
function keyOf(picture) {
  const { dataset, group, measure, snapshot, query, outcome, validity } = state;
  return JSON.stringify([dataset, group, measure, snapshot, query, outcome, validity, picture.uses?.(view)]);
}

function drawPicture(picture) {
  const style = { ...styleOf(view), width: picture.box.clientWidth, height: picture.box.clientHeight };
  const drawn = view.groups.length === 1 ? picture.draw(view, style) : { why: SEVERAL };
  picture.key = keyOf(picture);
  picture.drawn = drawn.why ? null : drawn;
  picture.figure.classList.toggle("sentence", !picture.drawn);
  picture.why.hidden = Boolean(picture.drawn);
  picture.why.textContent = drawn.why || "";
  for (const part of [picture.box, picture.legend, picture.caption, picture.table]) part.hidden = !picture.drawn;
  if (!picture.drawn) return;
  if (!picture.chart) {
    picture.chart = window.echarts.init(picture.box, null, { renderer: "svg" });
    if (picture.clicked) picture.chart.getZr().on("click", (event) => picture.clicked(event, picture.chart));
  }
  picture.chart.resize();
  setOption(picture.chart, drawn.option, style);
  picture.box.setAttribute("aria-label", `${picture.title}. ${drawn.summary}`);
  picture.caption.textContent = drawn.summary;
  const names = (drawn.legend || []).slice(0, MOST_NAMES);
  picture.legend.replaceChildren(...names.map((entry) => element("li", null, swatch(entry), entry.text)));
  fillTable(picture);
}

function setOption(chart, option, style) {
  const tooltip = {
    renderMode: "richText",
    confine: true,
    backgroundColor: style.back,
    borderColor: style.line,
    textStyle: { color: style.ink, fontSize: 12 },
    formatter: ({ data, seriesName }) => data?.tip || seriesName,
  };
  chart.setOption({ animation: false, textStyle: { fontFamily: style.font }, tooltip, ...option }, true);
  // The library gives its drawing a role of its own; the box around it has the words.
  for (const inner of chart.getDom().querySelectorAll("svg")) inner.setAttribute("aria-hidden", "true");
}

function fillTable({ table, drawn }) {
  if (!table.open || !drawn) return;
  const rows = drawn.rows();
  const first = rows.slice(0, MOST_TABLE_ROWS);
  const cut = rows.length > first.length ? ` The first ${first.length} of ${number(rows.length, 0)} rows.` : "";
  table.lastElementChild.replaceChildren(grid(`${drawn.summary}${cut}`, drawn.columns, first));
}

// Colours of the page as it is shown now, and one look for each system.
function styleOf(view) {
  const css = window.getComputedStyle(document.documentElement);
  const colours = ["ink", "quiet", "line", "back", "font"].map((name) => [name, css.getPropertyValue(`--${name}`)]);
  const rows = rowsOfGroups(view.groups);
  // Points of sweeps after the systems, which are drawn together far more often.
  const systems = unique(rows.map(familyOf)).sort();
  const points = unique(rows.map((row) => row.system)).sort();
  const looks = new Map(unique([...systems, ...points]).map((system, at) => [system, lookOf(at)]));
  return { ...Object.fromEntries(colours), look: (system) => looks.get(system) };
}

// The system that a row is drawn as: the swept system, or its own.
function familyOf({ system, sweep }) {
  return sweep ? sweep.system : system;
}

function lookOf(at) {
  const other = at + Math.floor(at / COLOURS.length);
  return {
    colour: COLOURS[at % COLOURS.length],
    dash: DASHES[other % DASHES.length],
    symbol: SYMBOLS[other % SYMBOLS.length],
  };
}

function legendOf(systems, style, without) {
  return systems.map((system) => ({ text: system, ...style.look(system), ...without }));
}

// A line with its dash, or a point with its shape, next to its name in a legend.
function swatch({ colour, dash, symbol }) {
  const half = dash ? 14 : 7;
  const size = { width: 2 * half, height: 12, viewBox: `${-half} -6 ${2 * half} 12`, "aria-hidden": "true" };
  const dashes = Array.isArray(dash) ? dash.join(" ") : null;
  const line = { d: "M-14 0H14", stroke: colour, "stroke-width": 2, "stroke-dasharray": dashes };
  const shape = { d: SWATCHES[symbol], fill: colour, stroke: colour };
  return element("svg", size, dash && element("path", line), symbol && element("path", shape));
}

// A plot of series over two axes.
function plot(margins, xAxis, yAxis, series) {
  return { grid: { right: 24, top: 16, bottom: 52, ...margins }, xAxis: { nameGap: 32, ...xAxis }, yAxis, series };
}

// An axis of numbers with its unit; logarithmic if they span more than a decade.
function axisOf(values, name, style, more) {
  const log = Math.min(...values) > 0 && Math.max(...values) / Math.min(...values) > 10;
  return {
    type: log ? "log" : "value",
    name: log ? `${name} (logarithmic)` : name,
    nameLocation: "middle",
    nameTextStyle: { color: style.ink, fontSize: 12 },
    scale: true,
    axisLine: { show: true, lineStyle: { color: style.quiet } },
    axisTick: { show: true },
    axisLabel: { color: style.ink, hideOverlap: true, formatter: tick },
    splitLine: { lineStyle: { color: style.line } },
    minorTick: { show: log },
    ...more,
  };
}

// 0.1, 10, 1,000: as short as they are exact.
function tick(value) {
  const short = Number(value.toPrecision(3));
  return Math.abs(short) >= 1000 ? number(short, 0) : String(short);
}

// One of the points that would cover one another: of one colour, in the same small square of the picture.
// at(item) gives [x, y].
function thinned(items, at, colourOf, logX) {
  if (items.length <= FEW) return items;
  const places = items.map(at).map(([x, y]) => [logX ? Math.log(x) : x, y]);
  const sides = [0, 1].map((side) => {
    const values = places.map((place) => place[side]);
    const [low, span] = [Math.min(...values), Math.max(...values) - Math.min(...values) || 1];
    return values.map((value) => Math.round(((value - low) / span) * SQUARES));
  });
  const seen = new Set();
  return items.filter((item, number) => {
    const key = `${sides[0][number]} ${sides[1][number]} ${colourOf(item)}`;
    return !seen.has(key) && seen.size < MOST_POINTS && seen.add(key);
  });
}

function rowsOf(view) {
  return view.rows.map((row) => content.rows[row]);
}

// The best-ranked row of each system, best first.
function bestOfSystems(rows, view, most) {
  const seen = new Set();
  const ordered = rows.slice().sort((a, b) => byRank(a, b, view));
  return ordered.filter(({ system }) => !seen.has(system) && seen.add(system)).slice(0, most);
}
