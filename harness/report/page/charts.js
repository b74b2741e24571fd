// Pictures: what they share.  Each says in one sentence what it shows and can be read as a table.
(function (page) {
  "use strict";

  const { element, find, grid } = page.elements;
  const { number } = page.numbers;
  const { styles, swatch } = page.looks;
  const MOST_ROWS = 500; // of a picture's table
  const known = []; // {id, section, title, draw, key}
  const made = new Map(); // id -> {chart, key, ...}
  let waiting = 0;

  // draw(view, style) gives {option, summary, columns, rows(), legend} or {why}: words for a picture that cannot be.
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
        parts.table,
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

  // After the table.  All at once when the page opens, so that a capture has no empty box; later one a frame.
  function show(view) {
    window.cancelAnimationFrame(waiting);
    for (const each of known) if (each.controls) each.controls(view, made.get(each.id).controls);
    if (known.every((each) => made.get(each.id).key === null)) {
      redraw();
      return;
    }
    waiting = window.requestAnimationFrame(() => drawNext(view, styles(view)));
  }

  // One picture a frame, so that a slider is never held up by all of them; those in sight first.
  function drawNext(view, style) {
    const changed = known.filter((each) => made.get(each.id).key !== each.key(view));
    const next = changed.find((each) => made.get(each.id).seen) || changed[0];
    if (!next) {
      fit(view, style);
      return;
    }
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
    fit(view, style);
  }

  // A picture beside one that became a sentence, or that was one, has another width now.
  function fit(view, style) {
    for (const each of known) {
      const { chart, box, drawn } = made.get(each.id);
      if (drawn && chart.getWidth() !== box.clientWidth) drawChanged(each, view, style);
    }
  }

  function drawChanged(each, view, style) {
    const parts = made.get(each.id);
    parts.key = each.key(view);
    drawOne(each, parts, view, style);
  }

  function watch() {
    const watcher = new IntersectionObserver(
      (entries) => {
        for (const entry of entries) made.get(entry.target.dataset.picture).seen = entry.isIntersecting;
        if (entries.some((entry) => entry.isIntersecting)) show(page.main.view());
      },
      { rootMargin: "150px" },
    );
    for (const figure of document.querySelectorAll("figure")) watcher.observe(figure);
  }

  function drawOne(each, parts, view, style) {
    const drawn = each.draw(view, { ...style, width: parts.box.clientWidth, height: parts.box.clientHeight });
    const none = drawn.why !== undefined;
    parts.why.hidden = !none;
    parts.box.parentElement.classList.toggle("sentence", none);
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
    parts.chart.setOption(
      { animation: false, textStyle: { fontFamily: style.font }, tooltip: tooltip(style), ...drawn.option },
      true,
    );
    // The library gives its drawing a role of its own; the box around it has the words.
    for (const inner of parts.box.querySelectorAll("svg")) inner.setAttribute("aria-hidden", "true");
    parts.box.setAttribute("aria-label", `${each.title}. ${drawn.summary}`);
    parts.caption.textContent = drawn.summary;
    parts.legend.replaceChildren(
      ...(drawn.legend || []).map((entry) => element("li", {}, swatch(entry, style), entry.text)),
    );
    fillTable(parts);
  }

  function fillTable(parts) {
    if (!parts.table.open || !parts.drawn) return;
    const { columns, summary } = parts.drawn;
    const rows = parts.drawn.rows();
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

  // The one group that a picture can compare, or null: rows of several groups are never compared.
  function one(view) {
    return view.groups.length === 1 ? view.groups[0] : null;
  }

  const SEVERAL = "Choose one comparison group: rows of different groups are not compared.";

  function choice(view) {
    const { state } = view;
    return [state.dataset, state.group, state.measure, state.snapshot, state.query, state.outcome, state.validity].join(
      "\n",
    );
  }

  page.charts = { register, build, show, redraw, one, choice, tooltip, SEVERAL };
})((window.harnessPage = window.harnessPage || {}));
