// What a million queries cost on each instance type.
(function (page) {
  "use strict";

  const { number } = page.numbers;
  const { charts, looks } = page;
  const MOST_TYPES = 30;

  function draw(view, style) {
    if (!charts.one(view)) return { why: charts.SEVERAL };
    const cost = page.data.column("cost", view.settings).value;
    const rows = view.rows.map((row) => page.content.rows[row]).filter((row) => cost[row.number] > 0);
    if (!rows.length) return { why: "No row that passes the filter has a cost at these prices." };
    if (rows.length === 1) {
      const [{ number: only, system, profile }] = rows;
      const type = page.data.text(page.data.placed(rows[0], view.state.snapshot).type);
      return { why: `${system} on ${profile} alone has a cost: US$ ${number(cost[only])} per million queries on ${type}.` };
    }
    const types = new Map();
    for (const row of rows) {
      const at = page.data.placed(row, view.state.snapshot);
      types.set(page.data.text(at.type), at.usd);
    }
    const ordered = Array.from(types)
      .sort((a, b) => a[1] - b[1] || (a[0] < b[0] ? -1 : 1))
      .slice(0, MOST_TYPES);
    const place = new Map(ordered.map(([name], at) => [name, at]));
    const typeOf = (row) => page.data.text(page.data.placed(row, view.state.snapshot).type);
    const shown = rows.filter((row) => place.has(typeOf(row)));
    const xAxis = looks.axis(
      shown.map((row) => cost[row.number]),
      "US$ per million queries",
      style,
      { nameGap: 32 },
    );
    const drawn = looks.thinned(
      shown,
      (row) => [cost[row.number], place.get(typeOf(row))],
      (row) => style.look(row.system).colour,
      [xAxis.type === "log", false],
    );
    const least = looks.smallest(rows.map((row) => cost[row.number]));
    const cheapest = rows.filter((row) => cost[row.number] === least);
    const equal = cheapest.length > 1 ? ` and ${cheapest.length - 1} equal` : "";
    const systems = Array.from(new Set(shown.map((row) => row.system))).sort();
    const left = types.size > MOST_TYPES ? ` The ${MOST_TYPES} cheapest of ${types.size} types.` : "";
    return {
      summary: `US$ per million queries on ${page.numbers.count(ordered.length, "instance type")}; the least is ${cheapest[0].system} on ${typeOf(cheapest[0])}${equal}: ${number(least)}.${left}`,
      columns: [
        { text: "instance type" },
        { text: "US$/h", numeric: true },
        { text: "system" },
        { text: "hardware profile" },
        { text: "US$ per million queries", numeric: true },
      ],
      rows: () =>
        shown
          .slice()
          .sort((a, b) => place.get(typeOf(a)) - place.get(typeOf(b)) || cost[a.number] - cost[b.number])
          .map((row) => [
            typeOf(row),
            String(types.get(typeOf(row))),
            row.system,
            row.profile,
            number(cost[row.number]),
          ]),
      legend: systems
        .slice(0, 24)
        .map((system) => ({ text: system, colour: style.look(system).colour, symbol: style.look(system).symbol })),
      option: {
        grid: { left: 150, right: 20, top: 12, bottom: 52 },
        xAxis,
        yAxis: {
          type: "category",
          inverse: true,
          data: ordered.map(([name, usd]) => `${name} (${usd})`),
          axisLabel: { color: style.ink, interval: 0, fontSize: 11, width: 140, overflow: "truncate" },
          axisTick: { show: false },
          splitLine: { show: true, lineStyle: { color: style.line } },
        },
        series: [
          {
            type: "scatter",
            symbolSize: 10,
            data: drawn.map((row) => ({
              value: [cost[row.number], place.get(typeOf(row))],
              name: `${row.system}, ${row.profile}`,
              symbol: style.look(row.system).symbol,
              itemStyle: { color: style.look(row.system).colour, opacity: 0.85 },
            })),
            tooltip: { formatter: ({ name, value }) => `${name}\n${number(value[0])} US$ per million queries` },
          },
        ],
      },
    };
  }

  charts.register({
    id: "cost",
    section: "pictures-more",
    title: "Cost by instance type (US$/h)",
    key: (view) => charts.choice(view),
    draw,
  });
})((window.harnessPage = window.harnessPage || {}));
