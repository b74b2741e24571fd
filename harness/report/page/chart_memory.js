// Latency in the memory limits that were tried, and the limits in which there was no answer.
(function (page) {
  "use strict";

  const { number, bytes, count } = page.numbers;
  const { charts, looks } = page;
  const MOST_SYSTEMS = 16;

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
    return Array.from(limits, ([name, known]) => [name, known.size]).sort(
      (a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1),
    );
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
    const limits = Array.from(new Set(rows.map((row) => row.memory))).sort((a, b) => a - b);
    if (limits.length === 1) return { why: `Every row with ${worded(chosen_)} had the same limit: ${bytes(limits[0])}.` };
    if (ran.length === 1) return { why: onlyAnswer(ran[0], values[0], failed) };

    const y = looks.axis(values, "mean latency, ms", style, { nameGap: 42 });
    const above = looks.largest(values) * (y.type === "log" ? 2 : 1.15);
    const lines = new Map();
    for (const system of bestSystems(ran, view)) lines.set(system, []);
    for (const row of ran.sort((a, b) => a.memory - b.memory))
      if (lines.has(row.system)) lines.get(row.system).push(row);
    const left = new Set(ran.map((row) => row.system)).size - lines.size;
    const said = failed.length
      ? `; ${count(failed.length, "row")} gave no answer (✕): ${Array.from(
          new Set(failed.map((row) => `${row.system} at ${bytes(row.memory)} (${row.outcome})`)),
        )
          .slice(0, 5)
          .join(", ")}`
      : "";
    return {
      summary: `Mean latency by memory limit with ${worded(chosen_)}: ${count(lines.size, "system")} at ${limits.map(bytes).join(", ")}${said}.${left ? ` The ${lines.size} best-ranked systems; ${left} more are in the table.` : ""}`,
      columns: [
        { text: "system" },
        { text: "memory limit", numeric: true },
        { text: "mean latency, ms", numeric: true },
        { text: "outcome" },
      ],
      rows: () =>
        rows
          .slice()
          .sort((a, b) => (a.system < b.system ? -1 : a.system > b.system ? 1 : a.memory - b.memory))
          .map((row) => [row.system, bytes(row.memory), number(latency[row.number]), row.outcome]),
      legend: [
        ...Array.from(lines.keys())
          .slice(0, 24)
          .map((system) => ({ text: system, ...style.look(system) })),
        ...(failed.length ? [{ text: "no answer at this limit", colour: style.ink, symbol: "cross" }] : []),
      ],
      option: {
        grid: { left: 62, right: 24, top: 22, bottom: 52 },
        xAxis: {
          ...looks.axis([0], "memory limit (logarithmic)", style, { nameGap: 32 }),
          type: "log",
          logBase: 2,
          min: 2 ** Math.floor(Math.log2(limits[0] / 2 ** 20) - 0.5),
          max: 2 ** Math.ceil(Math.log2(limits[limits.length - 1] / 2 ** 20) + 0.5),
          axisLabel: { color: style.ink, hideOverlap: true, formatter: (value) => bytes(value * 2 ** 20) },
        },
        yAxis: y,
        series: [
          ...Array.from(lines, ([system, some]) => memoryLine(system, some, latency, style)),
          crosses(
            failed.filter((row) => lines.has(row.system) || failed.length <= 50),
            above,
            style,
          ),
        ],
      },
    };
  }

  function onlyAnswer(row, latency, failed) {
    const none = failed.map((each) => `${each.system} at ${bytes(each.memory)} (${each.outcome})`);
    const answer = `${row.system} at ${bytes(row.memory)} has the only latency, ${number(latency)} ms`;
    return `${answer}${none.length ? `; no answer: ${none.slice(0, 5).join(", ")}` : ""}.`;
  }

  // Lines beyond these cannot be told apart.
  function bestSystems(rows, view) {
    const best = new Map();
    for (const row of rows) {
      const rank = Number.isNaN(view.rank[row.number]) ? Infinity : view.rank[row.number];
      best.set(row.system, Math.min(rank, best.has(row.system) ? best.get(row.system) : Infinity));
    }
    return Array.from(best)
      .sort((a, b) => a[1] - b[1] || (a[0] < b[0] ? -1 : 1))
      .slice(0, MOST_SYSTEMS)
      .map(([system]) => system);
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
      symbol: looks.CROSS,
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
    if (!box.firstChild)
      box.append(page.elements.select("envelope", "With", [], (value) => page.main.change({ envelope: value })));
    const options = envelopes(view).map(([name, many]) => [name, `${worded(name)} (${count(many, "memory limit")})`]);
    box.hidden = options.length < 2;
    page.elements.fill(page.elements.find("envelope"), options);
    page.elements.find("envelope").value = envelope(view) || "";
  }

  charts.register({
    id: "memory",
    section: "pictures-more",
    title: "Latency by memory limit",
    key: (view) =>
      [
        charts.choice(view),
        view.state.envelope,
        envelope(view) &&
          bestSystems(
            view.rows.map((row) => page.content.rows[row]),
            view,
          ),
      ].join("\n"),
    controls,
    draw: drawMemory,
  });
})((window.harnessPage = window.harnessPage || {}));
