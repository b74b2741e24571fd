// Which row wins at which weights (Figure 2 of Santhanam et al. 2023): a triangle of all weights, and where we are.
(function (page) {
  "use strict";

  const { number } = page.numbers;
  const { charts, looks } = page;
  const HEIGHT = Math.sqrt(3) / 2;
  const AXES = ["accuracy", "cost", "latency"];

  // Corners: accuracy above, cost left, latency right.
  function place([accuracy, , latency]) {
    return [latency + accuracy / 2, accuracy * HEIGHT];
  }

  function weightsAt([x, y]) {
    const accuracy = y / HEIGHT;
    const latency = x - accuracy / 2;
    const parts = [accuracy, 1 - accuracy - latency, latency];
    if (parts.some((part) => part < -0.03)) return null;
    const inside = parts.map((part) => Math.max(0, part));
    const sum = inside.reduce((total, part) => total + part, 0);
    return page.state.balanced(inside.map((part) => (part / sum) * page.state.WHOLE));
  }

  // Rows with all three, what each adds to a score at a weight of 1, and the exchange rates.
  function found(view, group) {
    const { rows } = page.view.members(group, AXES, view.settings);
    const rates = ["cost", "latency"].map((axis) => page.view.rate(group, rows, AXES, axis, view.state));
    const missing = ["cost", "latency"].filter((_, at) => rates[at].value === null);
    if (!rows.length) return { why: "No row has an accuracy, a cost and a latency." };
    if (missing.length) {
      const said = missing.map((axis) => `${axis}: ${rates[axis === "cost" ? 0 : 1].status}`).join("; ");
      return { why: `No map: an exchange rate is missing (${said}).` };
    }
    const value = (axis, row) => page.data.column(axis, view.settings).value[row];
    const terms = rows.map((row) => [
      value("accuracy", row),
      -value("cost", row) / rates[0].value,
      -value("latency", row) / rates[1].value,
    ]);
    return { rows, regions: page.winners.regions(terms) };
  }

  // The regions hang on everything but the weights: while a slider moves they stay.
  let last = { key: null };
  function kept(view, group) {
    const { state } = view;
    const key = [group.number, state.measure, state.snapshot, state.mode, state.rates.cost, state.rates.latency].join(
      " ",
    );
    if (last.key !== key) last = { key, ...found(view, group) };
    return last;
  }

  function draw(view, style) {
    const group = charts.one(view);
    if (!group) return { why: charts.SEVERAL };
    const { rows, regions, why } = kept(view, group);
    if (why) return { why };
    if (regions.length === 1) {
      return { why: `${named(page.content.rows[rows[regions[0].row]], regions[0].equal)} wins at all weights.` };
    }
    const whole = page.winners.area([
      [1, 0, 0],
      [0, 1, 0],
      [0, 0, 1],
    ]);
    const known = regions
      .map(({ row, polygon, equal }) => ({
        row: page.content.rows[rows[row]],
        polygon,
        equal,
        share: page.winners.area(polygon) / whole,
      }))
      .sort((a, b) => b.share - a.share);
    const names = known.slice(0, 6).map(({ row, equal, share }) => `${named(row, equal)} ${number(share * 100)} %`);
    return {
      summary: `Winners by share of all weights: ${names.join(", ")}${known.length > 6 ? ", and others" : ""}. The circle marks the chosen weights; a click chooses others.`,
      columns: [{ text: "system" }, { text: "hardware profile" }, { text: "share of all weights, %", numeric: true }],
      rows: () => known.map(({ row, equal, share }) => [row.system + also(equal), row.profile, number(share * 100)]),
      legend: known.slice(0, 12).map(({ row, equal }, at) => ({
        text: `${at + 1} ${row.system}, ${row.profile}${also(equal)}`,
        colour: style.look(row.system).colour,
        symbol: "rect",
      })),
      option: option(known, view, style),
    };
  }

  // Rows of equal terms win together; the first of them is named.
  function also(equal) {
    return equal ? ` and ${equal} equal` : "";
  }

  function named(row, equal) {
    return `${row.system} on ${row.profile}${also(equal)}`;
  }

  function option(known, view, style) {
    const side = Math.max(80, Math.min(style.width - 40, (style.height - 64) / HEIGHT));
    const left = (style.width - side) / 2;
    const axis = { show: false, min: 0, max: 1 };
    return {
      grid: { left, top: 28, width: side, height: side * HEIGHT },
      xAxis: axis,
      yAxis: { ...axis, max: HEIGHT },
      tooltip: { ...charts.tooltip(style), trigger: "item" },
      series: [regions(known, style), corners(style), here(view, style)],
    };
  }

  function regions(known, style) {
    return {
      type: "custom",
      data: known.map(({ row, share }) => ({
        value: [0.5, 0.3],
        name: `${row.system}, ${row.profile}\nwins at ${number(share * 100)} % of all weights`,
      })),
      tooltip: { formatter: ({ name }) => name },
      renderItem: ({ dataIndex }, api) => {
        const { row, polygon, share } = known[dataIndex];
        const points = polygon.map((corner) => api.coord(place(corner)));
        const middle = [0, 1].map((axis) => points.reduce((sum, point) => sum + point[axis], 0) / points.length);
        const fill = style.look(row.system).colour;
        const children = [
          { type: "polygon", shape: { points }, style: { fill, fillOpacity: 0.4, stroke: style.back, lineWidth: 1.5 } },
        ];
        const width = looks.largest(points.map(([x]) => x)) - looks.smallest(points.map(([x]) => x));
        const height = looks.largest(points.map(([, y]) => y)) - looks.smallest(points.map(([, y]) => y));
        const text =
          width > 110 && height > 40 && share > 0.06
            ? `${dataIndex + 1} ${row.system}\n${row.profile}`
            : share > 0.004
              ? String(dataIndex + 1)
              : "";
        const font = {
          fill: style.ink,
          stroke: style.back,
          lineWidth: 2,
          fontSize: 11,
          lineHeight: 15,
          align: "center",
          verticalAlign: "middle",
        };
        children.push({ type: "text", silent: true, style: { ...font, text, x: middle[0], y: middle[1] } });
        return { type: "group", children };
      },
    };
  }

  function corners(style) {
    const texts = [
      ["accuracy", [0.5, HEIGHT], { position: "top" }],
      ["cost", [0, 0], { position: [-16, 8], align: "left" }],
      ["latency", [1, 0], { position: [16, 8], align: "right" }],
    ];
    return {
      type: "scatter",
      silent: true,
      symbolSize: 1,
      data: texts.map(([name, value, at]) => ({ name: `all on ${name}`, value, label: at })),
      label: { show: true, formatter: "{b}", color: style.ink, fontSize: 12, fontWeight: "bold" },
    };
  }

  function here(view, style) {
    const share = view.state.weights.map((weight) => weight / page.state.WHOLE);
    return {
      type: "scatter",
      silent: true,
      z: 9,
      symbol: "circle",
      symbolSize: 16,
      itemStyle: { color: "transparent", borderColor: style.ink, borderWidth: 3 },
      data: [place(share)],
    };
  }

  function clicked(event, chart) {
    const weights = weightsAt(chart.convertFromPixel({ gridIndex: 0 }, [event.offsetX, event.offsetY]));
    if (weights) page.main.change({ weights });
  }

  charts.register({
    id: "winners",
    section: "pictures-first",
    title: "Who wins at which weights",
    key: (view) => {
      const { state } = view;
      return [
        charts.choice({ state: { ...state, query: "", outcome: "", validity: "" } }),
        state.mode,
        state.rates.cost,
        state.rates.latency,
        state.weights,
      ].join("\n");
    },
    clicked,
    draw,
  });
})((window.harnessPage = window.harnessPage || {}));
