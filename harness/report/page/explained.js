// How a number was made: the texts of `harness explain`, and the formulas that the page itself computes.

// The lines on how a number of a column was made, beyond its texts.
const MADE_OF = { rank: scoreLines, score: scoreLines, instance: priceLines, cost: priceLines, front: frontLines };

function bounded(item, unit) {
  if (item.value === null) return `${MISSING} (${item.reason || UNMEASURED})`;
  const ends = interval(item.value, item.low, item.high);
  const reason = item.reason ? `; ${item.reason}` : "";
  return `${number(item.value)}${unit ? ` ${unit}` : ""}${ends && ` (95 %: ${ends})`}${reason}`;
}

function samplesOf(row) {
  if (row.queries === undefined) return "no samples could be read";
  const fresh = row.jobs > 1 ? ` in ${count(row.jobs, "process", "processes")}` : "";
  return `${count(row.queries, "query", "queries")}, each timed ${count(row.trials, "time")}${fresh}`;
}

function scoreLines(row, view) {
  const { state, rankings, why, score, rank } = view;
  if (why[row.number]) return [`not ranked: ${why[row.number]}`];
  const ranking = rankings.find((each) => each.group.number === row.place);
  const { group, metrics, rows, share } = ranking;
  const term = (weight, axis) => `${weight} × ${plain(axisValues(axis, state).value[row.number], 6)}`;
  const costs = metrics.map(({ weight, name, rate }) => `${term(weight, name)} / ${plain(rate.value, 6)}`);
  const rates = metrics.map((metric) => {
    const worth = `${plain(metric.rate.value, 6)} ${axisNamed(metric.name).unit} for a point`;
    return `exchange rate of ${metric.name}: ${worth} (${rateSource(group, metric, state)})`;
  });
  return [
    `Dynascore = ${[term(share.accuracy, "accuracy"), ...costs].join(" − ")} = ${plain(score[row.number], 6)}`,
    "weight × accuracy (points) − weight × value / exchange rate (AMRS) for each of the others; higher is better",
    ...rates,
    `rank ${rank[row.number]} of ${count(rows.length, "row")} of this comparison group`,
    ...spanLines(row, ranking, view),
  ];
}

// How far the rank holds, and the systems that it depends on.
function spanLines(row, ranking, view) {
  const { queries, systems, weights } = rankSpans(row.number, view);
  const draws = content.perturbations.length;
  const ends = ([best, worst]) => (best === worst ? String(best) : `${best} to ${worst}`);
  const words = (span, how) => (typeof span === "string" ? span : `${ends(span)}${how}`);
  return [
    `rank with other queries: ${words(queries, `; 95 % over ${draws} resamples`)}`,
    `rank without each other system: ${words(systems, "")}`,
    `rank with weights moved by up to ${content.perturbation}: ${words(weights, `; 95 % over ${draws} draws`)}`,
    `set of systems: ${systemsIn(ranking).join(", ")}`,
  ];
}

function priceLines(row, { state }) {
  const snapshot = content.snapshots[state.snapshot];
  const prices = `prices: ${snapshotLabel(snapshot)} (${snapshot.source})`;
  return row.publishedType === null ? [prices] : [prices, `the paper's type: ${row.publishedType}`];
}

function frontLines(row, { state, frontOf }) {
  const found = frontOf[row.number];
  const axes = `over accuracy and ${axisNamed(state.across).label}`;
  if (found === null) return [`not on the picture ${axes}: it lacks a number`];
  if (found === "front") return [`on the Pareto front ${axes}: no row is at least as good on both and better on one`];
  const other = nameOf(content.rows[betterRow(row.number, state)]);
  if (found === "dominated") return [`dominated ${axes}: the intervals leave no doubt that ${other} is better`];
  return [`contested ${axes}: by their values ${other} is better, but the intervals do not say so`];
}

function filled(template, figures) {
  return template.replace(/\{(\w+)\}/g, (_, name) => figures[name]);
}

// The cost at the chosen prices, in the words of harness/report/explain.py.
function costText(row, state) {
  const templates = content.explained.cost;
  const at = placed(row, state);
  const cost = read("cost", row, state);
  if (cost.value === null) return filled(templates.none, { reason: cost.reason || at.note || "no price" });
  const { term, region, date } = content.snapshots[state.snapshot];
  const figures = {
    usd: number(cost.value).replaceAll(",", ""),
    mean_s: plain((read("latency", row, state).value || 0) / 1e3, 4),
    rate: plain(read("throughput", row, state).value || 0, 4),
    price: plain(at.usd, 6),
  };
  const machine = { ...at, memory: plain(at.memory / 2 ** 30, 6), price: figures.price, term, region, date };
  const model = row.scenario === "single_stream" ? templates.sequential : templates.saturated;
  const note = at.note && at.note.slice(0, 1).toUpperCase() + at.note.slice(1) + (at.note.endsWith(".") ? "" : ".");
  const priced = at.vcpus ? filled(templates.machine, machine) : ""; // a price that the user gave has no machine
  return [filled(model, figures), priced, note].filter(Boolean).join(" ");
}

// The arithmetic of a row's bill at the chosen traffic and prices, in the words of harness/report/explain.py.
function billText(row, { state }) {
  const templates = content.explained.bill;
  const reason = whyNoBill(row, state);
  if (reason !== null) return filled(templates.none, { reason });
  const { traffic: usual, seconds } = content.bills;
  const service = serviceOf(row, state);
  const found = billOf(service, state.traffic);
  const rate = usual.peak * (state.traffic / seconds);
  const figures = {
    queries: number(state.traffic, 0),
    peak: plain(usual.peak, 6),
    rate: plain(rate, 4),
    mean_s: plain((read("latency", row, state).value || 0) / 1e3, 4),
    capacity: plain(service.qps, 4),
    needed: plain(rate / service.qps, 4),
    machines: found.machines,
    type: placed(row, state).type,
    price: plain(service.usd, 6),
    search: plain(found.search, 6),
    build: plain(service.build ?? 0, 6),
    index: plain(service.storage ?? 0, 6),
    tokens: plain(service.tokens ?? 0, 6),
    total: plain(found.total, 6),
    per_million: plain((found.total / state.traffic) * 1e6, 6),
  };
  const part = (name, more) => filled(templates[name], { ...figures, ...more });
  const parts = [["builds", found.builds], ["storage", found.storage]];
  const known = parts.filter(([, usd]) => usd !== null);
  const unknown = parts.filter(([, usd]) => usd === null).map(([name]) => name);
  return [
    ...["rate", row.scenario === "server" ? "loaded" : "single", "machines", "search"].map((name) => part(name)),
    ...(found.tokens === null ? [] : [part("tokens", { usd: plain(found.tokens, 6) })]),
    ...known.map(([name, usd]) => part(name, { usd: plain(usd, 6), many: plain(usual.builds, 6) })),
    ...(unknown.length ? [part("unknown", { part: unknown.join(" and ") })] : []),
    part("sum"),
  ].join(" ");
}

// Paragraphs as Python stores them, numbers of texts, as [title, text].
function paragraphsOf(short) {
  return short.map(([title, ...pieces]) => [textOf(title), pieces.map(textOf).join(" ")]);
}

// How the row was made: what `harness explain` prints of it.  An index's cost is known at the first prices alone.
function explained(row, { state }) {
  const later = {
    Cost: () => costText(row, state),
    "Monthly bill": () => billText(row, { state }),
    "Stored jobs": () => row.keys.join(", "),
  };
  const opening = state.snapshot === content.snapshot;
  const known = paragraphsOf(row.explained).filter(([title]) => opening || title !== "Index cost");
  return known.map(([title, text]) => [title, text || later[title]()]);
}

// What a column means and how it is made.
function meaningOf(column, { state }) {
  return paragraphsOf(column.name === "accuracy" ? content.explained.measures[state.measure] : column.meaning);
}

// What to do about the causes of doubt, each once.
function remediesOf(row) {
  const known = unique(row.findings.flatMap(({ cause }) => content.explained.remedies[cause].map(textOf)));
  return known.length ? [["What to do", known.join(" ")]] : [];
}
