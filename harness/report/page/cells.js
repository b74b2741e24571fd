// The cells of a row.  A number is a button that opens its evidence; a missing one is a dash with its reason's mark.
const FRONT_MARKS = { front: "●", contested: "◆", dominated: "○" };
let reasons = []; // of missing numbers, in the order of their marks

function lineOf(row, columns, view) {
  const failed = row.outcome !== "ok";
  // A row without numbers says why over the whole width of the columns that it lacks.
  const lacking = columns.filter(({ numeric, name }) => failed && name !== "rank" && (numeric || name === "front"));
  const cells = columns.map((column) => {
    if (!lacking.includes(column)) return cellOf(column, row, view);
    if (column !== lacking[0]) return null;
    const why = ended(row);
    const attributes = { colspan: lacking.length, class: "why" };
    return element("td", attributes, evidenceButton("score", element("span", null, why), why));
  });
  return element("tr", { "data-row": row.number, class: `${failed ? "failed " : ""}${row.validity}` }, cells);
}

function evidenceButton(name, inside, label) {
  const attributes = { type: "button", class: "figure", tabindex: -1, "data-column": name, "aria-label": label };
  return element("button", attributes, inside);
}

function cellOf(column, row, view) {
  const { name, numeric } = column;
  if (name !== "system") {
    const attributes = { "data-column": name, "data-label": header(column, view.state), class: numeric && "number" };
    return element("td", attributes, (INSIDE[name] || numberInside)(row, view, column));
  }
  const unranked = row.outcome === "ok" && view.why[row.number];
  const marked = row.system + (row.standIn ? " †" : "") + (row.firstUse ? " ‡" : "");
  const title = row.system === content.null.system && content.null.meaning;
  return element(
    "th",
    { scope: "row", "data-column": name },
    element("span", { title }, marked),
    unranked && element("span", { class: "small", title: unranked }, `not ranked: ${unranked}`),
  );
}

// What a cell around the figures shows.
const INSIDE = {
  group: (row) => `${row.dataset}: ${content.groups[row.place].label}`,
  profile: (row) => row.profile,
  origin: (row) => row.origin || MISSING,
  outcome: (row) => evidenceButton("outcome", row.outcome, `outcome ${row.outcome}`),
  validity: validityInside,
  instance: instanceInside,
  front: (row, view) => {
    const found = view.frontOf[row.number];
    if (found) return evidenceButton("front", `${FRONT_MARKS[found]} ${found}`, `front: ${found}`);
    const { why } = members(content.groups[row.place], ["accuracy", view.state.across], view.state);
    return missingInside("front", why.get(row.number));
  },
};

function numberInside(row, view, column) {
  const { name, figure } = column;
  const value = sortValue(column, row, view);
  if (Number.isNaN(value)) {
    return missingInside(name, figure ? whyMissing(name, row, view.state) : view.why[row.number]);
  }
  const decimals = { rank: 0, score: 2, accuracy: 1 }[name];
  const cold = name === "latency" && row.onePass !== undefined;
  const shown = number(value, decimals);
  return evidenceButton(name, [
    column.foreign ? element("span", "foreign", `${shown}°`) : shown,
    figure && view.state.intervals && intervalInside(row, view, column),
    cold && element("span", "small", `after ${row.onePass} warm-up queries`),
  ]);
}

function intervalInside(row, view, column) {
  const { value, low, high } = axisValues(column.name, view.state);
  const text = interval(value[row.number], low[row.number], high[row.number]);
  // A dash where too few processes or queries bear an interval.
  const said = text || (column.interval ? MISSING : "");
  return said && element("span", "interval", said);
}

// "—" and the mark of its reason, which the footnotes repeat.
function missingInside(name, reason) {
  const text = reason || UNMEASURED;
  if (!reasons.includes(text)) reasons.push(text);
  const mark = element("sup", null, String(reasons.indexOf(text) + 1));
  return evidenceButton(name, [MISSING, mark], `no number: ${text}`);
}

function instanceInside(row, view) {
  const at = placed(row, view.state);
  if (at.usd === undefined) return missingInside("instance", at.note);
  const price = `${at.other === null ? "" : `${at.other}, `}${at.usd} US$/h`;
  const type = at.own ? at.type : `${at.type}*`;
  const label = at.own ? null : `${type} ${price}: priced there, measured elsewhere`;
  return evidenceButton("instance", [type, element("span", "interval", price)], label);
}

function validityInside(row) {
  if (row.outcome !== "ok" && row.validity === "clean") return MISSING;
  const doubts = row.findings.filter(({ validity }) => validity !== "clean");
  const causes = unique(doubts.map(({ cause }) => cause.replaceAll("_", " "))).join(", ");
  const label = `validity ${row.validity}${causes && `: ${causes}`}`;
  return evidenceButton("validity", [row.validity, causes && element("span", "small", causes)], label);
}
