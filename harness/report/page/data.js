// The page's data: rows, and each axis as columns of numbers (NaN: not measured, and reason() says why).
(function (page) {
  "use strict";

  const UNMEASURED = "not measured";
  let content = null;
  let figures = new Map(); // by name; `number` is its place in the rows
  const columns = new Map();

  function load(text) {
    content = JSON.parse(text);
    columns.clear();
    figures = new Map(content.figures.map((each, number) => [each.name, { ...each, number }]));
    content.rows.forEach((row, number) => {
      row.number = number;
      row.dataset = content.groups[row.place].dataset;
      row.scenario = content.groups[row.place].scenario;
      if (row.sweep) {
        const [system, named, label, curve] = row.sweep.map(text_);
        row.sweep = { system, named, label, curve };
      }
      for (const name of ["system", "profile", "suite", "origin", "detail", "standIn", "firstUse"]) {
        row[name] = text_(row[name]);
      }
    });
    content.groups.forEach((group, number) => {
      group.number = number;
      group.rows = Int32Array.from(content.rows.filter((row) => row.place === number).map((row) => row.number));
    });
    page.content = content;
    return content;
  }

  // The text of that number; null where there is none.
  function text_(number) {
    return number === null || number === undefined ? null : content.texts[number];
  }

  function figure(short) {
    const [value = null, low = null, high = null, reason = null] = short || [];
    return { value, low, high, reason: text_(reason) };
  }

  function scaled(item, factor) {
    const times = (value) => (value === null ? null : value * factor);
    return { value: times(item.value), low: times(item.low), high: times(item.high), reason: item.reason };
  }

  // Where a row is priced in a snapshot.
  function placed(row, snapshot) {
    return content.snapshots[snapshot].places[row.need];
  }

  function none(reason) {
    return { value: null, low: null, high: null, reason };
  }

  // A figure of a row at the chosen prices; "accuracy" is the chosen measure in points.
  function read(name, row, settings) {
    if (name === "accuracy") {
      const item = read(content.measures[settings.measure], row, settings);
      return scaled(item.value === null && item.reason === null ? none(UNMEASURED) : item, 100);
    }
    const known = figures.get(name);
    if (known === undefined) return none(null); // no row of this page has it
    const item = figure(row.figures && row.figures[known.number]);
    if (known.prices === "none" || row.outcome !== "ok") return item;
    if (known.prices === "other") return settings.snapshot === content.snapshot ? item : none("known at the first prices alone");
    // On a machine that costs one US$ an hour; Python has chosen the machine, and says whether its price fits.
    const at = placed(row, settings.snapshot);
    if (at.usd === undefined) return none(text_(at.note));
    if (item.value === null) return item;
    if (name === "cost" && row.scenario !== "single_stream" && at.part !== null) return none(text_(at.part));
    return scaled(item, at.usd);
  }

  function cost(row, snapshot) {
    return read("cost", row, { snapshot });
  }

  // An axis over all rows; kept until the measure or the prices are others.
  function column(axis, settings) {
    const key = `${axis} ${settings.measure} ${settings.snapshot}`;
    if (!columns.has(key)) columns.set(key, makeColumn(axis, { ...settings }));
    return columns.get(key);
  }

  function makeColumn(axis, settings) {
    const rows = content.rows;
    const made = { axis, value: new Float64Array(rows.length).fill(NaN) };
    made.low = new Float64Array(rows.length).fill(NaN);
    made.high = new Float64Array(rows.length).fill(NaN);
    made.reasons = new Array(rows.length).fill(null);
    rows.forEach((row, number) => {
      const item = read(axis, row, settings);
      if (item.value !== null) made.value[number] = item.value;
      if (item.low !== null) made.low[number] = item.low;
      if (item.high !== null) made.high[number] = item.high;
      made.reasons[number] = item.reason;
    });
    return made;
  }

  // How a row without numbers ended.
  function ended(row) {
    return `${row.outcome}: ${row.detail || "no detail was stored"}`;
  }

  // Why a figure is missing; never empty.
  function whyNot(axis, row, settings) {
    if (row.outcome !== "ok") return ended(row);
    return column(axis, settings).reasons[row.number] || UNMEASURED;
  }

  page.data = { load, text: text_, figure, read, column, cost, placed, whyNot, ended };
})((window.harnessPage = window.harnessPage || {}));
