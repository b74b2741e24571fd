// The page's data: rows, and each axis as columns of numbers (NaN: not measured; reasons say why).
const UNMEASURED = "not measured";
const ROW_TEXTS = ["system", "profile", "suite", "origin", "detail", "standIn", "firstUse", "pageCache", "again"];
const PLACE_TEXTS = ["type", "architecture", "other", "note", "part"];
let content = null;
let figures = new Map(); // by name
const columns = new Map(); // by axis, measure and prices

function load(json) {
  content = JSON.parse(json);
  figures = new Map(content.figures.map((figure, number) => [figure.name, { ...figure, number }]));
  content.rows.forEach((row, number) => {
    const { dataset, scenario } = content.groups[row.place];
    Object.assign(row, { number, dataset, scenario });
    fillTexts(row, [...ROW_TEXTS, "publishedType", "attached"]);
    row.bill = row.bill || {};
    row.findings = (row.findings || []).map(([cause, validity, text]) => ({ cause, validity, text: textOf(text) }));
    if (row.sweep) {
      const [system, named, label, curve] = row.sweep.map(textOf);
      row.sweep = { system, named, label, curve };
    }
  });
  for (const snapshot of content.snapshots) {
    fillTexts(snapshot, ["source"]);
    for (const place of snapshot.places) fillTexts(place, PLACE_TEXTS);
  }
  content.groups.forEach((group, number) => {
    group.number = number;
    group.rows = content.rows.filter((row) => row.place === number).map((row) => row.number);
  });
}

// Replace the numbers of texts by the texts.
function fillTexts(record, names) {
  for (const name of names) record[name] = textOf(record[name]);
}

function textOf(number) {
  return content.texts[number] ?? null;
}

function unique(values) {
  return Array.from(new Set(values));
}

function rowsOfGroups(groups) {
  return groups.flatMap((group) => group.rows.map((row) => content.rows[row]));
}

function nameOf({ system, profile }) {
  return `${system} on ${profile}`;
}

function labelOf({ system, profile }) {
  return `${system}, ${profile}`;
}

// The machine that prices a row in the chosen snapshot.
function placed(row, { snapshot }) {
  return content.snapshots[snapshot].places[row.need];
}

function missing(reason) {
  return { value: null, low: null, high: null, reason };
}

function scaled(item, factor) {
  const times = (value) => (value === null ? null : value * factor);
  return { value: times(item.value), low: times(item.low), high: times(item.high), reason: item.reason };
}

// A figure of a row at the chosen prices; "accuracy" is the chosen measure in points.
function read(name, row, state) {
  if (name === "accuracy") {
    const item = read(content.measures[state.measure], row, state);
    return scaled(item.value === null && item.reason === null ? missing(UNMEASURED) : item, 100);
  }
  const figure = figures.get(name);
  if (figure === undefined) return missing(null); // no row of this page has it
  const [value = null, low = null, high = null, reason] = row.figures?.[figure.number] || [];
  const item = { value, low, high, reason: textOf(reason) };
  if (figure.prices === "none" || row.outcome !== "ok") return item;
  if (figure.prices === "other") {
    return state.snapshot === content.snapshot ? item : missing("known at the first prices alone");
  }
  // On a machine that costs one US$ an hour; Python has chosen the machine, and says whether its price fits.
  const at = placed(row, state);
  if (at.usd === undefined) return missing(at.note);
  if (value === null) return item;
  if (name === "cost" && row.scenario !== "single_stream" && at.part !== null) return missing(at.part);
  return scaled(item, at.usd);
}

// An axis over all rows at the chosen measure and prices.
function axisValues(axis, state) {
  const key = `${axis} ${state.measure} ${state.snapshot}`;
  if (!columns.has(key)) {
    const items = content.rows.map((row) => read(axis, row, state));
    const numbers = (name) => Float64Array.from(items, (item) => item[name] ?? NaN);
    const ends = { low: numbers("low"), high: numbers("high") };
    columns.set(key, { value: numbers("value"), ...ends, reasons: items.map((item) => item.reason) });
  }
  return columns.get(key);
}

// How a row without numbers ended.
function ended(row) {
  return `${row.outcome}: ${row.detail || "no detail was stored"}`;
}

// Why a figure is missing; never empty.
function whyMissing(axis, row, state) {
  return row.outcome === "ok" ? axisValues(axis, state).reasons[row.number] || UNMEASURED : ended(row);
}

function axisNamed(name) {
  return content.axes.find((axis) => axis.name === name);
}
