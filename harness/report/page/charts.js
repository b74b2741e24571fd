// Pictures: what they share.  Each says in one sentence what it shows and can be read as a table.
(function (page) {
  "use strict";

  const { element, find, grid } = page.elements;
  const { number } = page.numbers;
  // Okabe and Ito's colours, which colour-blind people tell apart; yellow last, as it is faint on white.
  const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#B8A800"];
  const DASHES = ["solid", [8, 4], [2, 3], [10, 3, 2, 3]];
  const SYMBOLS = ["circle", "rect", "triangle", "diamond", "roundRect"];
  const CROSS = "path://M0 1L1 0L5 4L9 0L10 1L6 5L10 9L9 10L5 6L1 10L0 9L4 5Z";
  const MOST_ROWS = 500; // of a picture's table
  const FEW = 300; // points that are all drawn
  const MOST_POINTS = 800;
  const SQUARES = 60; // to a side of a picture
  const known = []; // {id, section, title, draw, key}
  const made = new Map(); // id -> {chart, key, ...}
  let waiting = 0;

  // draw(view, style) gives {option, summary, columns, rows, legend} or {why}: words for a picture that cannot be.
  // key(view) changes when the picture does; controls(view) may give nodes that stand above it.
  function register(each) {
    known.push(each);
  }

  function build() {
    for (const each of known) {
      const box = element("div", { class: "chart", id: `chart-${each.id}`, role: "img", "aria-label": each.title });
      const parts = {
        box,
        chart: null,
        key: null,
        seen: false,
        controls: element("div", { class: "chart-controls" }),
        why: element("p", { class: "quiet why-not", hidden: true }),
        legend: element("ul", { class: "legend", "aria-hidden": "true" }),
        table: element("details", { class: "as-table" }, element("summary", {}, "Show as table")),
        caption: element("p", { class: "summary-line" }),
      };
      parts.table.addEventListener("toggle", () => fillTable(parts));
      const figure = element(
        "figure",
        { id: `figure-${each.id}`, "data-picture": each.id, "aria-labelledby": `title-${each.id}` },
        element("figcaption", { id: `title-${each.id}` }, each.title),
        parts.controls,
        box,
        parts.why,
        parts.legend,
        parts.caption,
        parts.table
      );
      find(each.section).append(figure);
      made.set(each.id, parts);
    }
    watch();
    let resized = 0;
    window.addEventListener("resize", () => {
      window.clearTimeout(resized);
      resized = window.setTimeout(() => redraw(), 100);
    });
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraw());
  }

  // After the table; what is asked for several times before a frame is drawn once.
  function show(view) {
    window.cancelAnimationFrame(waiting);
    waiting = window.requestAnimationFrame(() => drawNext(view, styles(view)));
  }

  // One picture a frame, so that a slider is never held up by all of them, and none that nobody sees.
  function drawNext(view, style) {
    const next = known.find((each) => made.get(each.id).seen && made.get(each.id).key !== each.key(view));
    if (!next) return;
    drawChanged(next, view, style);
    waiting = window.requestAnimationFrame(() => drawNext(view, style));
  }

  // All of them now: on paper, all are seen.
  function redraw() {
    window.cancelAnimationFrame(waiting);
    const view = page.main.view();
    const style = styles(view);
    for (const each of known) {
      made.get(each.id).key = null;
      drawChanged(each, view, style);
    }
  }

  function drawChanged(each, view, style) {
    const parts = made.get(each.id);
    parts.key = each.key(view);
    if (each.controls) each.controls(view, parts.controls);
    drawOne(each, parts, view, style);
  }

  function watch() {
    const watcher = new IntersectionObserver(
      (entries) => {
        for (const entry of entries) made.get(entry.target.dataset.picture).seen = entry.isIntersecting;
        if (entries.some((entry) => entry.isIntersecting)) show(page.main.view());
      },
      { rootMargin: "150px" }
    );
    for (const figure of document.querySelectorAll("figure")) watcher.observe(figure);
  }

  function drawOne(each, parts, view, style) {
    const drawn = each.draw(view, { ...style, width: parts.box.clientWidth, height: parts.box.clientHeight });
    const none = drawn.why !== undefined;
    parts.why.hidden = !none;
    parts.why.textContent = none ? drawn.why : "";
    for (const shown of [parts.box, parts.legend, parts.caption, parts.table]) shown.hidden = none;
    parts.drawn = none ? null : drawn;
    if (none) {
      if (parts.chart) parts.chart.clear();
      return;
    }
    if (!parts.chart) {
      parts.chart = window.echarts.init(parts.box, null, { renderer: "svg" });
      if (each.clicked) parts.chart.getZr().on("click", (event) => each.clicked(event, parts.chart));
    }
    parts.chart.resize();
    parts.chart.setOption({ animation: false, textStyle: { fontFamily: style.font }, tooltip: tooltip(style), ...drawn.option }, true);
    // The library gives its drawing a role of its own; the box around it has the words.
    for (const inner of parts.box.querySelectorAll("svg")) inner.setAttribute("aria-hidden", "true");
    parts.box.setAttribute("aria-label", `${each.title}. ${drawn.summary}`);
    parts.caption.textContent = drawn.summary;
    parts.legend.replaceChildren(...(drawn.legend || []).map((entry) => element("li", {}, swatch(entry, style), entry.text)));
    fillTable(parts);
  }

  function fillTable(parts) {
    if (!parts.table.open || !parts.drawn) return;
    const { columns, rows, summary } = parts.drawn;
    const cut = rows.length > MOST_ROWS ? ` The first ${MOST_ROWS} of ${number(rows.length, 0)} rows.` : "";
    const inside = element("div", { class: "scroll" }, grid(`${summary}${cut}`, columns, rows.slice(0, MOST_ROWS)));
    parts.table.replaceChildren(parts.table.firstElementChild, inside);
  }

  function tooltip(style) {
    return {
      renderMode: "richText",
      confine: true,
      backgroundColor: style.back,
      borderColor: style.line,
      textStyle: { color: style.ink, fontSize: 12 },
    };
  }

  // Colours of the page as it is shown now, and one look for each system.
  function styles(view) {
    const css = window.getComputedStyle(document.documentElement);
    const of = (name) => css.getPropertyValue(name).trim();
    const systems = new Set();
    for (const group of view.groups) for (const row of group.rows) systems.add(page.content.rows[row].system);
    const looks = new Map(Array.from(systems).sort().map((system, at) => [system, look(at)]));
    return {
      ink: of("--ink"),
      quiet: of("--quiet"),
      line: of("--line"),
      back: of("--back"),
      font: of("--font"),
      look: (system) => looks.get(system),
    };
  }

  function look(at) {
    const round = Math.floor(at / COLOURS.length);
    return {
      colour: COLOURS[at % COLOURS.length],
      dash: DASHES[(at + round) % DASHES.length],
      symbol: SYMBOLS[(at + round) % SYMBOLS.length],
    };
  }

  const SVG = "http://www.w3.org/2000/svg";

  // A line with its dash, or a point with its shape, beside its name in a legend.
  function swatch(entry, style) {
    const svg = document.createElementNS(SVG, "svg");
    const set = (node, values) => Object.entries(values).forEach(([name, value]) => node.setAttribute(name, value));
    set(svg, { width: entry.dash ? 28 : 14, height: 12, "aria-hidden": "true" });
    const middle = entry.dash ? 14 : 7;
    if (entry.dash) {
      const stroke = document.createElementNS(SVG, "line");
      set(stroke, { x1: 0, x2: 28, y1: 6, y2: 6, stroke: entry.colour, "stroke-width": 2 });
      if (Array.isArray(entry.dash)) stroke.setAttribute("stroke-dasharray", entry.dash.join(" "));
      svg.append(stroke);
    }
    if (entry.symbol) svg.append(shape(entry, middle, style, set));
    return svg;
  }

  function shape(entry, x, style, set) {
    const points = {
      triangle: [[0, -5], [5, 4], [-5, 4]],
      diamond: [[0, -6], [6, 0], [0, 6], [-6, 0]],
      rect: [[-4, -4], [4, -4], [4, 4], [-4, 4]],
      roundRect: [[-5, -3], [5, -3], [5, 3], [-5, 3]],
    }[entry.symbol];
    const node = document.createElementNS(SVG, points ? "polygon" : entry.symbol === "cross" ? "path" : "circle");
    const fill = entry.hollow ? style.back : entry.colour;
    if (points) set(node, { points: points.map(([dx, dy]) => `${x + dx},${6 + dy}`).join(" ") });
    else if (entry.symbol === "cross") set(node, { d: `M${x - 4} 2l8 8m0 -8l-8 8`, "stroke-width": 2 });
    else set(node, { cx: x, cy: 6, r: 4.5 });
    set(node, { fill, stroke: entry.colour });
    return node;
  }

  // An axis of numbers with its unit; logarithmic where they span more than a decade.
  function axis(values, name, style, more) {
    const positive = values.filter((value) => value > 0);
    const span = positive.length ? page.charts.largest(positive) / page.charts.smallest(positive) : 1;
    const log = span > 10 && positive.length === values.length;
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

  function largest(values) {
    return values.reduce((most, value) => Math.max(most, value), -Infinity);
  }

  function smallest(values) {
    return values.reduce((least, value) => Math.min(least, value), Infinity);
  }

  // Of points that would lie on one another, one: those of one colour in the same small square of the picture.
  // at(item) gives [x, y]; log says which of the two are drawn on a logarithmic axis.
  function thinned(items, at, colourOf, log) {
    if (items.length <= FEW) return items;
    const places = items.map((item) => at(item).map((value, side) => (log[side] ? Math.log(value) : value)));
    const ends = [0, 1].map((side) => {
      const values = places.map((place) => place[side]);
      return [smallest(values), largest(values)];
    });
    const seen = new Set();
    return items.filter((item, number_) => {
      const squares = places[number_].map((value, side) => Math.round(((value - ends[side][0]) / (ends[side][1] - ends[side][0] || 1)) * SQUARES));
      const key = `${squares} ${colourOf(item)}`;
      if (seen.has(key) || seen.size >= MOST_POINTS) return false;
      return seen.add(key);
    });
  }

  // The one group that a picture can compare, or null: rows of several groups are never compared.
  function one(view) {
    return view.groups.length === 1 ? view.groups[0] : null;
  }

  const SEVERAL = "Choose one comparison group: rows of different groups are not compared.";

  function choice(view) {
    const { state } = view;
    return [state.dataset, state.group, state.measure, state.snapshot, state.query, state.outcome, state.validity].join("\n");
  }

  page.charts = {
    register, build, show, redraw, axis, styles, look, largest, smallest, thinned, one, choice, tooltip, SEVERAL, CROSS,
  };
})((window.harnessPage = window.harnessPage || {}));
