// How latencies are spread: for each system, and of one row (in its evidence).
(function (page) {
  "use strict";

  const { number } = page.numbers;
  const { charts, looks } = page;
  const MOST_LINES = 12;
  const BINS = 24;

  // One row of each system: its best-ranked one that passes the filter and has samples.
  function chosen(view) {
    const best = new Map();
    const better = (a, b) => (Number.isNaN(view.rank[b]) ? true : view.rank[a] < view.rank[b]);
    for (const number_ of view.rows) {
      const row = page.content.rows[number_];
      const before = best.get(row.system);
      if (row.quantiles && (before === undefined || better(number_, before))) best.set(row.system, number_);
    }
    const rank = (row) => (Number.isNaN(view.rank[row]) ? Infinity : view.rank[row]);
    return Array.from(best.values())
      .sort((a, b) => rank(a) - rank(b) || a - b)
      .slice(0, MOST_LINES);
  }

  function steps(quantiles) {
    return quantiles.map((seconds, at) => [seconds * 1e3, (100 * at) / (quantiles.length - 1)]);
  }

  function drawEcdf(view, style) {
    if (!charts.one(view)) return { why: charts.SEVERAL };
    const rows = chosen(view).map((row) => page.content.rows[row]);
    if (!rows.length)
      return {
        why: "No row that passes the filter has stored samples of single queries, so there is no distribution.",
      };
    const at = (row, share) => row.quantiles[Math.round(share * (row.quantiles.length - 1))] * 1e3;
    const all = rows.flatMap((row) => [at(row, 0), at(row, 1)]);
    const name = (row) => `${row.system}, ${row.profile}`;
    if (new Set(all).size < 2) return { why: `All samples took ${number(all[0])} ms (${rows.map(name).join("; ")}).` };
    return {
      summary: `Share of samples answered within a latency, for the best-ranked row of each system: ${rows
        .slice(0, 6)
        .map((row) => `${name(row)} median ${number(at(row, 0.5))} ms`)
        .join("; ")}.`,
      columns: [
        { text: "system" },
        { text: "hardware profile" },
        ...["minimum", "median", "90 %", "98 %", "maximum"].map((text) => ({ text: `${text}, ms`, numeric: true })),
      ],
      rows: () =>
        rows.map((row) => [row.system, row.profile, ...[0, 0.5, 0.9, 0.98, 1].map((share) => number(at(row, share)))]),
      legend: rows.map((row) => ({ text: name(row), ...style.look(row.system), symbol: null })),
      option: {
        grid: { left: 52, right: 20, top: 16, bottom: 52 },
        xAxis: looks.axis(all, "latency, ms", style, { nameGap: 32 }),
        yAxis: looks.axis([0], "samples within, %", style, { nameGap: 36, min: 0, max: 100 }),
        series: rows.map((row) => ({
          type: "line",
          name: name(row),
          symbol: "none",
          data: steps(row.quantiles),
          lineStyle: { color: style.look(row.system).colour, type: style.look(row.system).dash, width: 2 },
          itemStyle: { color: style.look(row.system).colour },
          triggerLineEvent: true,
          tooltip: { formatter: ({ seriesName }) => seriesName },
        })),
      },
    };
  }

  // The share of samples in equal bins, from the quantiles; equal on a logarithmic axis where they span a decade.
  function bins(quantiles, log) {
    const turn = log ? Math.log : (value) => value;
    const back = log ? Math.exp : (value) => value;
    const points = quantiles.map((seconds) => turn(seconds * 1e3));
    const [low, high] = [points[0], points[points.length - 1]];
    const below = (value) => {
      let at = 0;
      while (at < points.length - 1 && points[at + 1] <= value) at += 1;
      if (at >= points.length - 1) return 1;
      const width = points[at + 1] - points[at];
      return (at + (width ? Math.max(0, value - points[at]) / width : 0)) / (points.length - 1);
    };
    return Array.from({ length: BINS }, (_, at) => {
      const [from, to] = [low + ((high - low) * at) / BINS, low + ((high - low) * (at + 1)) / BINS];
      const upper = at === BINS - 1 ? 1 : below(to);
      return [back(from), back(to), 100 * (upper - (at ? below(from) : 0))];
    });
  }

  // The two pictures of one row's samples, drawn into the boxes of its evidence.
  function distribution(row, dialog) {
    const made = [];
    for (const box of dialog.querySelectorAll("[data-chart]")) {
      const style = looks.styles(page.main.view());
      const colour = looks.look(0).colour;
      const values = row.quantiles.map((seconds) => seconds * 1e3);
      const x = looks.axis(values, "latency, ms", style, { nameGap: 28 });
      const histogram = box.dataset.chart === "histogram";
      const option = {
        animation: false,
        textStyle: { fontFamily: style.font },
        grid: { left: 48, right: 16, top: 12, bottom: 46 },
        xAxis: x,
        yAxis: looks.axis([0], histogram ? "samples, %" : "samples within, %", style, {
          nameGap: 32,
          min: 0,
          max: histogram ? null : 100,
        }),
        series: [
          histogram
            ? bars(bins(row.quantiles, x.type === "log"), colour, style)
            : { type: "line", symbol: "none", data: steps(row.quantiles), lineStyle: { color: colour, width: 2 } },
        ],
      };
      const chart = window.echarts.init(box, null, { renderer: "svg" });
      chart.setOption(option);
      for (const inner of box.querySelectorAll("svg")) inner.setAttribute("aria-hidden", "true");
      made.push(chart);
    }
    return made;
  }

  function bars(known, colour, style) {
    return {
      type: "custom",
      data: known,
      encode: { x: [0, 1], y: 2 },
      renderItem: (_, api) => {
        const [from, to] = [api.coord([api.value(0), api.value(2)]), api.coord([api.value(1), 0])];
        const shape = {
          x: from[0],
          y: from[1],
          width: Math.max(1, to[0] - from[0] - 1),
          height: Math.max(0, to[1] - from[1]),
        };
        return { type: "rect", shape, style: { fill: colour, stroke: style.back } };
      },
    };
  }

  charts.distribution = distribution;
  charts.bins = bins;
  charts.register({
    id: "ecdf",
    section: "pictures-more",
    title: "Latency distributions",
    key: (view) => [charts.choice(view), chosen(view)].join("\n"),
    draw: drawEcdf,
  });
})((window.harnessPage = window.harnessPage || {}));
