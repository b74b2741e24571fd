// The columns of the table: what each is sorted by, and whose figure a cell shows.
(function (page) {
  "use strict";

  const NO_NUMBER = NaN;

  function axisColumn(name, text, axis) {
    return {
      name,
      text,
      numeric: true,
      axis,
      value: (row, view) => page.data.column(axis, view.settings).value[row.number],
    };
  }

  const FRONT = { front: 0, contested: 1, dominated: 2 };
  const VALIDITY = { clean: 0, unknown: 1, noisy: 2, invalid: 3 };

  // In reading order.  `value` is what a column is sorted by: a number (NaN: none, always last) or a text.
  const COLUMNS = [
    { name: "rank", text: "rank", numeric: true, value: (row, view) => view.rank[row.number] },
    { name: "system", text: "system", value: (row) => row.system },
    { name: "origin", text: "origin", value: (row) => row.origin || "" },
    { name: "group", text: "comparison group", value: (row) => row.place },
    { name: "profile", text: "hardware profile", value: (row) => row.profile },
    {
      name: "instance",
      text: "instance type, US$/h",
      value: (row, view) => {
        const { usd } = page.data.placed(row, view.state.snapshot);
        return usd === undefined ? NO_NUMBER : usd;
      },
    },
    { name: "score", text: "Dynascore", numeric: true, value: (row, view) => view.score[row.number] },
    axisColumn("accuracy", "accuracy, points", "accuracy"),
    axisColumn("latency", "mean latency, ms", "latency"),
    axisColumn("p95", "p95, ms", "p95"),
    axisColumn("cost", "US$ per million queries", "cost"),
    axisColumn("memory", "peak anonymous, MiB", "memory"),
    axisColumn("index", "index, MiB", "index"),
    axisColumn("throughput", "throughput, queries/s", "throughput"),
    {
      name: "front",
      text: "front",
      value: (row, view) => {
        const found = view.frontOf[row.number];
        return found === null ? NO_NUMBER : FRONT[found];
      },
    },
    { name: "outcome", text: "outcome", value: (row) => row.outcome },
    { name: "validity", text: "validity", value: (row) => VALIDITY[row.validity] },
  ];

  // Those that say something here: a group where there are several, whose results they are where they were merged, a
  // throughput where a scenario has one.
  function shown(view) {
    const open = view.groups.some((group) => group.scenario !== "single_stream");
    return COLUMNS.filter(
      (column) =>
        (column.name !== "group" || view.groups.length > 1) &&
        (column.name !== "origin" || page.content.rows.some((row) => row.origin !== null)) &&
        (column.name !== "throughput" || open),
    );
  }

  function header(column, view) {
    if (column.name !== "accuracy") return column.text;
    return `${page.content.measures[view.state.measure]}, points`;
  }

  // Rows by the chosen column; what has no value stands last either way, ties by rank and then as they came.
  function sorted(rows, view) {
    const column = COLUMNS.find((each) => each.name === view.state.sort);
    const side = view.state.descending ? -1 : 1;
    const keys = new Map(rows.map((row) => [row, column.value(page.content.rows[row], view)]));
    const apart = column.name === "rank" && view.groups.length > 1;
    const rankOf = (row) => (Number.isNaN(view.rank[row]) ? Infinity : view.rank[row]);
    const placeOf = (row) => page.content.rows[row].place;
    return rows.slice().sort((a, b) => {
      if (apart && placeOf(a) !== placeOf(b)) return placeOf(a) - placeOf(b);
      const found = compared(keys.get(a), keys.get(b), side);
      if (found) return found;
      const [one, other] = [rankOf(a), rankOf(b)];
      return one === other ? a - b : one - other;
    });
  }

  function compared(one, other, side) {
    if (typeof one === "string") return one === other ? 0 : side * (one < other ? -1 : 1);
    if (Number.isNaN(one) || Number.isNaN(other)) return Number(Number.isNaN(one)) - Number(Number.isNaN(other));
    return side * (one - other);
  }

  page.columns = { COLUMNS, shown, header, sorted };
})((window.harnessPage = window.harnessPage || {}));
