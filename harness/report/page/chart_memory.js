// Latency by memory limit, and the limits at which a system gave no answer.
const MOST_SYSTEMS = 16; // lines beyond these cannot be told apart
const MIB = 2 ** 20;

function hardwareOf({ cpus, gpus }) {
  return `${cpus}-${gpus}`;
}

// Rows with a limit; a service that ran already has none that is known.
function limitedRows(view) {
  return rowsOf(view).filter((row) => row.memory);
}

// Each number of CPUs and GPUs with its number of memory limits, most limits first.
function envelopesOf(view) {
  const rows = limitedRows(view);
  const limits = (name) => unique(rows.filter((row) => hardwareOf(row) === name).map((row) => row.memory)).length;
  const known = unique(rows.map(hardwareOf)).sort();
  return known.map((name) => [name, limits(name)]).sort((a, b) => b[1] - a[1]);
}

function chosenEnvelope(view) {
  const names = envelopesOf(view).map(([name]) => name);
  return names.includes(view.state.envelope) ? view.state.envelope : names[0];
}

function envelopeLabel(name) {
  const [cpus, gpus] = name.split("-").map(Number);
  return `${count(cpus, "CPU")}, ${gpus ? count(gpus, "GPU") : "no GPU"}`;
}

// The rows of the chosen CPUs and GPUs by memory limit, and the best-ranked systems with a latency.
function memoryRows(view) {
  const latency = axisValues("latency", view.state).value;
  const chosen = chosenEnvelope(view);
  const rows = limitedRows(view).filter((row) => hardwareOf(row) === chosen).sort((a, b) => a.memory - b.memory);
  const ran = rows.filter((row) => !Number.isNaN(latency[row.number]));
  const systems = bestOfSystems(ran, view, MOST_SYSTEMS).map(({ system }) => system);
  return { latency, chosen, rows, ran, systems };
}

function drawMemory(view, style) {
  const { latency, chosen, rows, ran, systems } = memoryRows(view);
  if (!ran.length) return { why: "No row that passes the filter has a latency." };
  const label = envelopeLabel(chosen);
  const failed = rows.filter((row) => row.outcome !== "ok");
  const named = failed.map((row) => `${row.system} at ${bytes(row.memory)} (${row.outcome})`);
  const without = unique(named).slice(0, 5).join(", ");
  const limits = unique(rows.map((row) => row.memory));
  const values = ran.map((row) => latency[row.number]);
  if (limits.length === 1) return { why: `Every row with ${label} had the same limit: ${bytes(limits[0])}.` };
  if (ran.length === 1) {
    const only = `${ran[0].system} at ${bytes(ran[0].memory)} has the only latency, ${number(values[0])} ms`;
    return { why: `${only}${without && `; no answer: ${without}`}.` };
  }
  const y = axisOf(values, "mean latency, ms", style, { nameGap: 42 });
  const above = Math.max(...values) * (y.type === "log" ? 2 : 1.15);
  const left = unique(ran.map((row) => row.system)).length - systems.length;
  const tried = `${count(systems.length, "system")} at ${limits.map(bytes).join(", ")}`;
  const crossed = without && `; ${count(failed.length, "row")} gave no answer (✕): ${without}`;
  const more = left ? ` The ${systems.length} best-ranked systems; ${left} more are in the table.` : "";
  return {
    summary: `Mean latency by memory limit with ${label}: ${tried}${crossed}.${more}`,
    columns: [["system"], ["memory limit", "number"], ["mean latency, ms", "number"], ["outcome"]],
    rows: () =>
      rows
        .sort((a, b) => compared(a.system, b.system, 1) || a.memory - b.memory)
        .map((row) => [row.system, bytes(row.memory), number(latency[row.number]), row.outcome]),
    legend: [
      ...legendOf(systems, style),
      ...(failed.length ? [{ text: "no answer at this limit", colour: style.ink, symbol: "cross" }] : []),
    ],
    option: plot({ left: 62 }, memoryAxis(limits, style), y, [
      ...systems.map((system) => memoryLine(ran.filter((row) => row.system === system), latency, style)),
      crosses(failed, above, style),
    ]),
  };
}

function memoryAxis(limits, style) {
  const [low, high] = [limits[0], limits[limits.length - 1]].map((memory) => Math.log2(memory / MIB));
  return {
    ...axisOf([], "memory limit (logarithmic)", style),
    type: "log",
    logBase: 2,
    min: 2 ** Math.floor(low - 0.5),
    max: 2 ** Math.ceil(high + 0.5),
    axisLabel: { color: style.ink, hideOverlap: true, formatter: (value) => bytes(value * MIB) },
  };
}

function memoryLine(rows, latency, style) {
  const { colour, dash, symbol } = style.look(rows[0].system);
  const data = rows.map((row) => ({
    value: [row.memory / MIB, latency[row.number]],
    tip: `${labelOf(row)}\n${number(latency[row.number])} ms`,
  }));
  const lineStyle = { color: colour, type: dash, width: 1.5 };
  return { type: "line", symbol, symbolSize: 8, lineStyle, itemStyle: { color: colour }, data };
}

function crosses(failed, above, style) {
  const data = failed.map((row) => ({
    value: [row.memory / MIB, above],
    tip: `${labelOf(row)}: ${row.outcome}`,
    itemStyle: { color: style.look(row.system).colour },
  }));
  return { type: "scatter", symbol: `path://${SWATCHES.cross}`, symbolSize: 11, data };
}

pictures.push({
  id: "memory",
  draw: drawMemory,
  uses: (view) => [view.state.envelope, memoryRows(view).systems],
  controls: (view) => {
    const label = ([name, many]) => `${envelopeLabel(name)} (${count(many, "memory limit")})`;
    const options = envelopesOf(view).map((each) => [each[0], label(each)]);
    fill("envelope", options, chosenEnvelope(view) || "");
    find("envelope").parentElement.hidden = options.length < 2;
  },
});
