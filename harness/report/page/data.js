// The page's data: rows, and each axis as columns of numbers (NaN: not measured, and reason() says why).
(function (page) {
  "use strict";

  const MIB = 2 ** 20;
  const UNMEASURED = "not measured";
  let content = null;
  const columns = new Map();

  function load(text) {
    content = JSON.parse(text);
    columns.clear();
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

  // The mean, ms.
  function latency(row) {
    return scaled(figure(row.mean), 1e3);
  }

  // Where a row is priced in a snapshot.
  function placed(row, snapshot) {
    return content.snapshots[snapshot].places[row.need];
  }

  // US$ per million queries: the two models of harness/pricing/cost.py, on machines that Python has chosen.
  function cost(row, snapshot) {
    const at = placed(row, snapshot);
    const note = text_(at.note);
    const throughput = figure(row.throughput);
    if (row.outcome !== "ok") return { value: null, low: null, high: null, reason: null };
    if (at.usd === undefined) return { value: null, low: null, high: null, reason: note };
    if (row.scenario === "single_stream") {
      const mean = figure(row.mean);
      if (mean.value === null) return mean;
      const sequential = (seconds) => (seconds === null ? null : ((seconds * at.usd) / 3600) * 1e6);
      return { ...mean, value: sequential(mean.value), low: sequential(mean.low), high: sequential(mean.high) };
    }
    if (throughput.value === null) return throughput;
    if (at.part !== null) return { value: null, low: null, high: null, reason: text_(at.part) };
    const priced = (rate) => (rate === null ? null : (at.usd / (rate * 3600)) * 1e6);
    return {
      value: priced(throughput.value),
      low: priced(throughput.high),
      high: priced(throughput.low),
      reason: text_(row.throughputNote === undefined ? null : row.throughputNote),
    };
  }

  function size(value) {
    if (value === undefined || value === null) return { value: null, low: null, high: null, reason: UNMEASURED };
    return { value: value / MIB, low: null, high: null, reason: null };
  }

  function read(axis, row, settings) {
    if (axis === "accuracy") {
      const short = row.measures ? row.measures[settings.measure] : null;
      return scaled(short ? figure(short) : { ...figure(null), reason: UNMEASURED }, 100);
    }
    if (axis === "latency") return latency(row);
    if (axis === "cost") return cost(row, settings.snapshot);
    if (axis === "memory") return size(row.anon);
    if (axis === "index") return size(row.index);
    if (axis === "throughput") return figure(row.throughput);
    return scaled(figure(row[axis]), 1e3); // p50, p95, p99
  }

  // An axis over all rows; kept until the measure or the prices are others.
  function column(axis, settings) {
    const of = { accuracy: settings.measure, cost: settings.snapshot }[axis];
    const key = `${axis} ${of === undefined ? "" : of}`;
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

  page.data = { load, text: text_, figure, read, column, cost, latency, placed, whyNot, ended };
})((window.harnessPage = window.harnessPage || {}));
