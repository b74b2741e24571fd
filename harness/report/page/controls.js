// What can be chosen: the comparison, weights, exchange rates, prices; and the words about what they give.
(function (page) {
  "use strict";

  const { element, find, select, fill } = page.elements;
  const { number, count } = page.numbers;
  const NARROW = window.matchMedia("(max-width: 760px)");
  let base = null; // which slider is moved, the weights that it started from, and those that it came to

  function build() {
    buildWhat();
    buildWeights();
    buildRates();
    buildPrices();
    fold();
    NARROW.addEventListener("change", fold);
  }

  // A phone's first screen is the answer: choices open there when asked for.
  function fold() {
    find("choices").open = !NARROW.matches;
  }

  function buildWhat() {
    const change = page.main.change;
    find("what").append(
      select("dataset", "Dataset", [], (value) => {
        const group = page.state.largest(page.content.groups.filter((each) => each.dataset === value));
        change({ dataset: value, group: group ? group.number : null, page: 0 });
      }),
      select("group", "Comparison group", [], (value) =>
        change({ group: value === page.state.ALL ? null : Number(value), page: 0 }),
      ),
      select("measure", "Accuracy is", [], (value) => change({ measure: Number(value) })),
    );
  }

  function buildWeights() {
    const box = find("weights");
    page.state.AXES.forEach((axis, at) => {
      const id = `weight-${axis}`;
      box.append(
        element(
          "div",
          { class: "slider" },
          element("label", { for: id }, axis),
          element("input", {
            type: "range",
            id,
            min: 0,
            max: 100,
            step: 1,
            oninput: (event) => slide(at, Number(event.target.value)),
            onchange: () => page.main.settle(),
          }),
          element("output", { for: id, id: `${id}-value` }),
        ),
      );
    });
    const presets = page.content.presets.map((preset) =>
      element(
        "button",
        {
          type: "button",
          class: "preset",
          "data-preset": preset.name,
          title: page.state.AXES.map((axis) => `${axis} ${preset.weights[axis] || 0}`).join(", "),
          onclick: () => page.main.change({ weights: page.state.thousandths(preset.weights) }),
        },
        preset.name,
      ),
    );
    box.append(element("div", { class: "presets", role: "group", "aria-label": "Preset weights" }, presets));
  }

  // While one slider moves, the others keep the proportion that they had when it began to.
  function slide(at, percent) {
    const now = page.main.current().weights;
    if (base === null || base.at !== at || base.came !== now) base = { at, from: now };
    base.came = page.state.moved(base.from, at, percent * 10);
    page.main.change({ weights: base.came }, { dragging: true });
  }

  function buildRates() {
    const change = page.main.change;
    const rate = (axis, unit) =>
      element(
        "label",
        { class: "field small", for: `rate-${axis}` },
        element("span", {}, `1 point = ${axis}, ${unit}`),
        element("input", {
          type: "text",
          id: `rate-${axis}`,
          inputmode: "decimal",
          autocomplete: "off",
          size: 8,
          onchange: (event) => {
            const value = Number(event.target.value);
            const given = event.target.value.trim() !== "" && Number.isFinite(value) && value > 0 ? value : null;
            change({ rates: { ...page.main.current().rates, [axis]: given } });
          },
        }),
      );
    find("rates").append(
      select(
        "mode",
        "Dynascore mode",
        page.state.modes().map((mode) => [mode, mode]),
        (mode) => change({ mode }),
      ),
      element("div", { class: "pair" }, rate("latency", "ms"), rate("cost", "US$/million")),
      element("div", { class: "presets", id: "known-rates" }),
    );
  }

  function buildPrices() {
    const at = (wanted) => {
      // The snapshot that fits what was chosen, and else as much of the rest as there is; the newest of several.
      const current = page.content.snapshots[page.main.current().snapshot];
      const asked = { ...current, ...wanted };
      const score = (each) =>
        (region(each) === region(asked) ? 8 : 0) +
        (each.term === asked.term ? 4 : 0) +
        (each.date === asked.date ? 2 : 0);
      let best = 0;
      page.content.snapshots.forEach((each, number) => {
        const fits = Object.keys(wanted).every((name) => each[name] === wanted[name]);
        const before = page.content.snapshots[best];
        const fitted = Object.keys(wanted).every((name) => before[name] === wanted[name]);
        if ((fits && !fitted) || (fits === fitted && score(each) >= score(before))) best = number;
      });
      page.main.change({ snapshot: best });
    };
    find("prices").append(
      select("region", "Region", [], (value) => {
        const [provider, name] = value.split("/");
        at({ provider, region: name });
      }),
      select("term", "Term", [], (term) => at({ term })),
      select("date", "Price date", [], (date) => at({ date })),
    );
  }

  function region(snapshot) {
    return `${snapshot.provider}/${snapshot.region}`;
  }

  function set(id, options, value) {
    const box = find(id);
    fill(box, options);
    box.value = value;
    box.disabled = options.length < 2;
  }

  function unique(values) {
    return Array.from(new Set(values));
  }

  // The controls as the state says; what is being dragged or typed into is left alone.
  function show(view) {
    const { state } = view;
    const groups = page.content.groups;
    const datasets = unique(groups.map((group) => group.dataset));
    const every = datasets.length > 1 ? [[page.state.ALL, "all datasets"]] : [];
    set("dataset", [...datasets.map((name) => [name, name]), ...every], state.dataset);
    const here = groups.filter((group) => state.dataset === page.state.ALL || group.dataset === state.dataset);
    const all = here.length > 1 ? [[page.state.ALL, `all ${here.length} groups, each ranked apart`]] : [];
    const several = state.dataset === page.state.ALL;
    const named = here.map((group) => [
      String(group.number),
      `${several ? `${group.dataset}: ` : ""}${group.label} (${count(group.rows.length, "row")})`,
    ]);
    set("group", several ? all : [...named, ...all], state.group === null ? page.state.ALL : String(state.group));
    set(
      "measure",
      page.content.measures.map((name, at) => [String(at), name]),
      String(state.measure),
    );
    showWeights(state);
    find("mode").value = state.mode;
    for (const axis of ["latency", "cost"]) showRate(axis, view);
    showGivenRates(view.state);
    showPrices(state);
  }

  function showWeights(state) {
    page.state.AXES.forEach((axis, at) => {
      const percent = state.weights[at] / 10;
      const input = find(`weight-${axis}`);
      if (Number(input.value) !== Math.round(percent)) input.value = String(Math.round(percent));
      input.setAttribute("aria-valuetext", `${number(percent, percent % 1 ? 1 : 0)} per cent`);
      find(`weight-${axis}-value`).textContent = `${number(percent, percent % 1 ? 1 : 0)} %`;
    });
    for (const button of document.querySelectorAll("[data-preset]")) {
      const preset = page.content.presets.find((each) => each.name === button.dataset.preset);
      const same = page.state.thousandths(preset.weights).every((weight, at) => weight === state.weights[at]);
      button.setAttribute("aria-pressed", String(same));
    }
  }

  function showRate(axis, view) {
    const input = find(`rate-${axis}`);
    const given = view.state.rates[axis];
    if (document.activeElement !== input) input.value = given === null ? "" : String(given);
    const ranking = view.rankings.length === 1 ? view.rankings[0] : null;
    const metric = ranking && ranking.metrics.find((each) => each.name === axis);
    const computed =
      metric && metric.rate.value !== null ? number(metric.rate.value) : metric ? metric.rate.status : "";
    input.placeholder = computed;
  }

  // The way back from rates that somebody typed.
  function showGivenRates(state) {
    const box = find("known-rates");
    const given = state.rates.cost !== null || state.rates.latency !== null;
    const none = { cost: null, latency: null };
    const back = () => element("button", { type: "button", class: "preset", onclick: () => page.main.change({ rates: none }) }, state.mode);
    box.replaceChildren(...(given ? [back()] : []));
  }

  function showPrices(state) {
    const snapshots = page.content.snapshots;
    const now = snapshots[state.snapshot];
    set(
      "region",
      unique(snapshots.map(region)).map((name) => [name, name.replace("/", " ")]),
      region(now),
    );
    const there = snapshots.filter((each) => region(each) === region(now));
    set(
      "term",
      unique(there.map((each) => each.term)).map((term) => [term, term]),
      now.term,
    );
    const dates = there.filter((each) => each.term === now.term).map((each) => each.date);
    set(
      "date",
      dates
        .sort()
        .reverse()
        .map((date) => [date, date]),
      now.date,
    );
  }

  // In words: what the ranking is of, and what one point of accuracy is worth in it.
  function summarise(view) {
    find("summary").replaceChildren(...view.rankings.map((ranking) => sentence(ranking, view)));
  }

  function sentence(ranking, view) {
    const { state } = view;
    const price = page.content.snapshots[state.snapshot];
    const known = ranking.metrics.filter((metric) => metric.rate.value !== null);
    const missing = ranking.metrics.filter((metric) => metric.rate.value === null);
    const rates = known.map((metric) => {
      const unit = page.content.axes.find((axis) => axis.name === metric.name).unit;
      return `${number(metric.rate.value)} ${unit} (${page.view.rateSource(ranking.group, metric, state)})`;
    });
    const none = missing.map((metric) => ` No exchange rate of ${metric.name} (${metric.rate.status}), so no scores.`);
    const cut = state.mode === "robust" ? `; accuracies within ${number(ranking.cutoff)} points are one` : "";
    const name = view.rankings.length > 1 ? `${ranking.group.dataset}, ${ranking.group.label}: ` : "";
    const parts = [
      `${name}${count(ranking.rows.length, "row")} ranked, ${ranking.why.size} not.`,
      rates.length ? ` One point of accuracy is worth ${rates.join(" or ")}${cut}.` : "",
      ...none,
      ranking.metrics.length ? "" : " Ranked by accuracy alone.",
      ` Prices: ${price.provider} ${price.region}, ${price.term}, ${price.date}.`,
    ];
    return element("p", {}, ...parts);
  }

  page.controls = { build, show, summarise };
})((window.harnessPage = window.harnessPage || {}));
