// The evidence of one number in a dialog: how it was made, its doubts, its samples, its job, how to repeat it.
let opened = null; // the row and column that the dialog shows
let drawn = []; // charts in the dialog

function buildEvidence() {
  const dialog = find("evidence");
  dialog.addEventListener("close", closed);
  find("evidence-close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close(); // a click outside its content
  });
}

// As the state says; after the table.
function showEvidence(view) {
  const wanted = view.state.evidence;
  const dialog = find("evidence");
  if (wanted === null) return dialog.close();
  if (opened?.row === wanted.row && opened.column === wanted.column) return;
  opened = wanted;
  const row = content.rows[wanted.row];
  const column = columnNamed(wanted.column);
  find("evidence-title").textContent = `${header(column, view.state)}: ${nameOf(row)}`;
  find("evidence-headline").textContent = headlineOf(row, column, view);
  find("evidence-parts").replaceChildren(...partsOf(row, column, view).filter(Boolean));
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
  drawn = drawDistribution(row, dialog); // a closed dialog has no width
}

function closed() {
  const { row, column } = opened;
  opened = null;
  for (const chart of drawn) chart.dispose();
  if (state.evidence !== null) change({ evidence: null });
  find("body").querySelector(`tr[data-row="${row}"] button[data-column="${column}"]`)?.focus();
}

function headlineOf(row, { name, figure }, view) {
  if (figure) {
    const item = read(name, row, view.state);
    return item.value === null ? `${MISSING} ${whyMissing(name, row, view.state)}` : bounded(item);
  }
  if (name === "rank" || name === "score") return number(view[name][row.number], name === "rank" ? 0 : 3);
  if (name === "front") return view.frontOf[row.number] || MISSING;
  if (name === "instance") return placed(row, view.state).type || MISSING;
  return row[name];
}

function partsOf(row, column, view) {
  const all = explained(row, view);
  const titles = all.map(([title]) => title);
  const trust = all.slice(titles.indexOf("Trust"), titles.includes("Stored jobs") ? -1 : undefined);
  const own = all.filter(([title]) => ["Outcome", column.title].includes(title));
  const others = all.filter((each) => !own.includes(each) && !trust.includes(each));
  const made = MADE_OF[column.name]?.(row, view) || [];
  return [
    part("How it was made", paragraphs(own), list("ul", made), paragraphs(meaningOf(column, view))),
    part("Trust, and what to do", paragraphs([...trust, ...remediesOf(row)]), list("ul", notesOf(row))),
    part("Samples", samplesPart(row, view)),
    part("The other numbers of this row", paragraphs(others)),
    part("All figures of this row", row.outcome === "ok" && facts(figuresOf(row, view))),
    part("Job", facts(jobOf(row))),
    part("Environment", environmentPart(row)),
    part("To measure it again", againPart(row)),
  ];
}

function part(title, ...inside) {
  const known = inside.flat().filter(Boolean);
  return known.length > 0 && element("section", null, element("h3", null, title), known);
}

function paragraphs(pairs) {
  const parts = ([title, text]) => [element("strong", null, title), element("span", null, text)];
  return pairs.map((pair) => element("p", "explained", parts(pair)));
}

function facts(pairs) {
  const known = pairs.filter(([, value]) => ![null, undefined, ""].includes(value));
  const lines = known.map(([name, value]) => [element("dt", null, name), element("dd", null, String(value))]);
  return element("dl", null, lines);
}

function samplesPart(row, view) {
  const sentence = (text) => element("p", null, text);
  if (!row.quantiles) {
    const reason = read("p50_ms", row, view.state).reason || "no samples of single queries are stored";
    return sentence(`No distribution: ${row.outcome === "ok" ? reason : "it has no samples"}.`);
  }
  const at = (share) => `${number(quantile(row, share))} ms`;
  if (quantile(row, 0) === quantile(row, 1)) return sentence(`${samplesOf(row)}; all took ${at(0)}.`);
  const words = `${samplesOf(row)}; minimum ${at(0)}, median ${at(0.5)}, maximum ${at(1)}`;
  const boxes = ["histogram", "ecdf"].map((kind) => {
    const label = `${kind} of latency: ${words}`;
    return element("div", { class: "chart small-chart", "data-chart": kind, role: "img", "aria-label": label });
  });
  return [sentence(words), element("div", "two", boxes)];
}

function notesOf(row) {
  return [
    row.standIn && `† a stand-in for the published checkpoint: ${row.standIn}`,
    row.firstUse && `‡ pinned at first use: ${row.firstUse}`,
    ...(row.notes || []).map(textOf),
  ].filter(Boolean);
}

function figuresOf(row, view) {
  const means = (row.trialMeans || []).map((value) => `${number(value * 1e3)} ms`).join(", ");
  const known = content.figures.map(({ name, label, unit }) => {
    const item = read(name, row, view.state);
    return [label, item.value === null && !item.reason ? null : bounded(item, unit)];
  });
  return [...known, ["means of trials", means]];
}

function jobOf(row) {
  const memory = row.nominal ? `${bytes(row.nominal)} (limit ${bytes(row.memory)})` : bytes(row.memory);
  const limits = [count(row.cpus, "CPU"), memory, row.gpus && count(row.gpus, "GPU")].filter(Boolean).join(", ");
  const hardware = row.attached || limits;
  return [
    ["origin", row.origin],
    ["suite", row.suite],
    ["dataset, scenario", `${row.dataset}, ${row.scenario}`],
    ["hardware profile", `${row.profile}: ${hardware}`],
    ["compared with", content.groups[row.place].label],
    ["started", row.started],
    ["stored attempts", row.attempts],
    ["page cache", row.pageCache],
    ["harness on CPUs of its own", { true: "yes", false: "no" }[row.apart]],
  ];
}

function environmentPart(row) {
  if (row.attached) return element("p", null, `${row.attached}: the service ran already, and harness saw no machine.`);
  if (row.machine === undefined) return element("p", null, "Published, not measured here: no environment is known.");
  return facts(content.machines[row.machine].map(([label, text]) => [label, textOf(text)]));
}

function againPart(row) {
  if (!row.again) {
    return element("p", null, "Nothing of this row was run here, so nothing here repeats it.");
  }
  const words = `SUITE is the file of the suite “${row.suite}”; stored jobs stay, and are compared with.`;
  return [element("pre", null, element("code", null, row.again)), element("p", "quiet", words)];
}
