// Latency: its distribution for each system, in the memory limits that were tried, and of one row (in its evidence).
(function (page) {
  "use strict";

  const { number, bytes, count } = page.numbers;
  const { charts } = page;
  const MOST_LINES = 12;
  const MOST_SYSTEMS = 16;
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
    return Array.from(best.values()).sort((a, b) => rank(a) - rank(b) || a - b).slice(0, MOST_LINES);
  }

  function steps(quantiles) {
    return quantiles.map((seconds, at) => [seconds * 1e3, (100 * at) / (quantiles.length - 1)]);
  }

  function drawEcdf(view, style) {
    if (!charts.one(view)) return { why: charts.SEVERAL };
    const rows = chosen(view).map((row) => page.content.rows[row]);
    if (!rows.length) return { why: "No row that passes the filter has stored samples of single queries, so there is no distribution." };
    const at = (row, share) => row.quantiles[Math.round(share * (row.quantiles.length - 1))] * 1e3;
    const all = rows.flatMap((row) => [at(row, 0), at(row, 1)]);
    const name = (row) => `${row.system}, ${row.profile}`;
    return {
      summary: `Share of samples answered within a latency, for the best-ranked row of each system: ${rows.slice(0, 6).map((row) => `${name(row)} median ${number(at(row, 0.5))} ms`).join("; ")}.`,
      columns: [{ text: "system" }, { text: "hardware profile" }, ...["minimum", "median", "90 %", "98 %", "maximum"].map((text) => ({ text: `${text}, ms`, numeric: true }))],
      rows: rows.map((row) => [row.system, row.profile, ...[0, 0.5, 0.9, 0.98, 1].map((share) => number(at(row, share)))]),
      legend: rows.map((row) => ({ text: name(row), ...style.look(row.system), symbol: null })),
      option: {
        grid: { left: 52, right: 20, top: 16, bottom: 52 },
        xAxis: charts.axis(all, "latency, ms", style, { nameGap: 32 }),
        yAxis: charts.axis([0], "samples within, %", style, { nameGap: 36, min: 0, max: 100 }),
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

  function hardware(row) {
    return `${row.cpus}-${row.gpus}`;
  }

  // The CPUs and GPUs that rows have in common, with the memory limits tried, most limits first.
  function envelopes(view) {
    const limits = new Map();
    for (const number_ of view.rows) {
      const row = page.content.rows[number_];
      if (!limits.has(hardware(row))) limits.set(hardware(row), new Set());
      limits.get(hardware(row)).add(row.memory);
    }
    return Array.from(limits, ([name, known]) => [name, known.size]).sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
  }

  function envelope(view) {
    const known = envelopes(view);
    const asked = known.find(([name]) => name === view.state.envelope);
    return (asked || known[0] || [null])[0];
  }

  function worded(envelope_) {
    const [cpus, gpus] = envelope_.split("-").map(Number);
    return `${count(cpus, "CPU")}, ${gpus ? count(gpus, "GPU") : "no GPU"}`;
  }

  function drawMemory(view, style) {
    if (!charts.one(view)) return { why: charts.SEVERAL };
    const chosen_ = envelope(view);
    const latency = page.data.column("latency", view.settings).value;
    const rows = view.rows.map((row) => page.content.rows[row]).filter((row) => hardware(row) === chosen_);
    const ran = rows.filter((row) => !Number.isNaN(latency[row.number]));
    if (!ran.length) return { why: "No row that passes the filter has a latency." };
    const values = ran.map((row) => latency[row.number]);
    const failed = rows.filter((row) => row.outcome !== "ok");

    const y = charts.axis(values, "mean latency, ms", style, { nameGap: 42 });
    const above = charts.largest(values) * (y.type === "log" ? 2 : 1.15);
    const lines = new Map();
    for (const system of bestSystems(ran, view)) lines.set(system, []);
    for (const row of ran.sort((a, b) => a.memory - b.memory)) if (lines.has(row.system)) lines.get(row.system).push(row);
    const left = new Set(ran.map((row) => row.system)).size - lines.size;
    const limits = Array.from(new Set(rows.map((row) => row.memory))).sort((a, b) => a - b);
    const said = failed.length ? `; ${count(failed.length, "row")} gave no answer (✕): ${Array.from(new Set(failed.map((row) => `${row.system} at ${bytes(row.memory)} (${row.outcome})`))).slice(0, 5).join(", ")}` : "";
    return {
      summary: `Mean latency by memory limit with ${worded(chosen_)}: ${count(lines.size, "system")} at ${limits.map(bytes).join(", ")}${said}.${left ? ` The ${lines.size} best-ranked systems; ${left} more are in the table.` : ""}`,
      columns: [{ text: "system" }, { text: "memory limit", numeric: true }, { text: "mean latency, ms", numeric: true }, { text: "outcome" }],
      rows: rows.slice().sort((a, b) => (a.system < b.system ? -1 : a.system > b.system ? 1 : a.memory - b.memory)).map((row) => [row.system, bytes(row.memory), number(latency[row.number]), row.outcome]),
      legend: [
        ...Array.from(lines.keys()).slice(0, 24).map((system) => ({ text: system, ...style.look(system) })),
        ...(failed.length ? [{ text: "no answer at this limit", colour: style.ink, symbol: "cross" }] : []),
      ],
      option: {
        grid: { left: 62, right: 24, top: 22, bottom: 52 },
        xAxis: {
          ...charts.axis([0], "memory limit (logarithmic)", style, { nameGap: 32 }),
          type: "log",
          logBase: 2,
          min: 2 ** Math.floor(Math.log2(limits[0] / 2 ** 20) - 0.5),
          max: 2 ** Math.ceil(Math.log2(limits[limits.length - 1] / 2 ** 20) + 0.5),
          axisLabel: { color: style.ink, hideOverlap: true, formatter: (value) => bytes(value * 2 ** 20) },
        },
        yAxis: y,
        series: [...Array.from(lines, ([system, some]) => memoryLine(system, some, latency, style)), crosses(failed.filter((row) => lines.has(row.system) || failed.length <= 50), above, style)],
      },
    };
  }

  // Lines beyond these cannot be told apart.
  function bestSystems(rows, view) {
    const best = new Map();
    for (const row of rows) {
      const rank = Number.isNaN(view.rank[row.number]) ? Infinity : view.rank[row.number];
      best.set(row.system, Math.min(rank, best.has(row.system) ? best.get(row.system) : Infinity));
    }
    return Array.from(best).sort((a, b) => a[1] - b[1] || (a[0] < b[0] ? -1 : 1)).slice(0, MOST_SYSTEMS).map(([system]) => system);
  }

  function memoryLine(system, some, latency, style) {
    const look = style.look(system);
    return {
      type: "line",
      name: system,
      symbol: look.symbol,
      symbolSize: 8,
      data: some.map((row) => ({ value: [row.memory / 2 ** 20, latency[row.number]], name: row.profile })),
      lineStyle: { color: look.colour, type: look.dash, width: 1.5 },
      itemStyle: { color: look.colour },
      tooltip: { formatter: ({ seriesName, name, value }) => `${seriesName}, ${name}\n${number(value[1])} ms` },
    };
  }

  function crosses(failed, above, style) {
    return {
      type: "scatter",
      symbol: charts.CROSS,
      symbolSize: 11,
      data: failed.map((row) => ({
        value: [row.memory / 2 ** 20, above],
        name: `${row.system}, ${row.profile}: ${row.outcome}`,
        itemStyle: { color: style.look(row.system).colour },
      })),
      tooltip: { formatter: ({ name }) => name },
    };
  }

  function controls(view, box) {
    if (!box.firstChild) box.append(page.elements.select("envelope", "With", [], (value) => page.main.change({ envelope: value })));
    const options = envelopes(view).map(([name, many]) => [name, `${worded(name)} (${count(many, "memory limit")})`]);
    page.elements.fill(page.elements.find("envelope"), options);
    page.elements.find("envelope").value = envelope(view) || "";
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
      const style = charts.styles(page.main.view());
      const colour = charts.look(0).colour;
      const values = row.quantiles.map((seconds) => seconds * 1e3);
      const x = charts.axis(values, "latency, ms", style, { nameGap: 28 });
      const histogram = box.dataset.chart === "histogram";
      const option = {
        animation: false,
        textStyle: { fontFamily: style.font },
        grid: { left: 48, right: 16, top: 12, bottom: 46 },
        xAxis: x,
        yAxis: charts.axis([0], histogram ? "samples, %" : "samples within, %", style, { nameGap: 32, min: 0, max: histogram ? null : 100 }),
        series: [histogram ? bars(bins(row.quantiles, x.type === "log"), colour, style) : { type: "line", symbol: "none", data: steps(row.quantiles), lineStyle: { color: colour, width: 2 } }],
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
        const shape = { x: from[0], y: from[1], width: Math.max(1, to[0] - from[0] - 1), height: Math.max(0, to[1] - from[1]) };
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
  charts.register({
    id: "memory",
    section: "pictures-more",
    title: "Latency by memory limit",
    key: (view) => [charts.choice(view), view.state.envelope, envelope(view) && bestSystems(view.rows.map((row) => page.content.rows[row]), view)].join("\n"),
    controls,
    draw: drawMemory,
  });
})((window.harnessPage = window.harnessPage || {}));
