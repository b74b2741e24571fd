// The controls: comparison, weights, exchange rates, prices, filters; and a sentence on the ranking that they give.
const NARROW = window.matchMedia("(max-width: 760px)");
let slid = null; // the slider that moves, the weights that it started from, and the weights that it came to

// The changes that each control asks for, by its id.
const CHOICES = {
  dataset: (dataset) => {
    const group = largestGroup(content.groups.filter((each) => each.dataset === dataset));
    return { dataset, group: group && group.number, page: 0 };
  },
  group: (group) => ({ group: group === ALL ? null : Number(group), page: 0 }),
  measure: (measure) => ({ measure: Number(measure) }),
  mode: (mode) => ({ mode }),
  "rate-cost": (text) => ({ rates: { ...state.rates, cost: positive(text.trim()) ?? null } }),
  "rate-latency": (text) => ({ rates: { ...state.rates, latency: positive(text.trim()) ?? null } }),
  region: (value) => {
    const [provider, region] = value.split("/");
    return { snapshot: nearestSnapshot({ provider, region }) };
  },
  term: (term) => ({ snapshot: nearestSnapshot({ term }) }),
  date: (date) => ({ snapshot: nearestSnapshot({ date }) }),
  outcome: (outcome) => ({ outcome, page: 0 }),
  validity: (validity) => ({ validity, page: 0 }),
  intervals: (_, box) => ({ intervals: box.checked }),
  across: (across) => ({ across }),
  envelope: (envelope) => ({ envelope }),
  queries: (text) => ({ traffic: queriesIn(text) ?? state.traffic }),
};

function buildControls() {
  document.addEventListener("change", ({ target }) => {
    if (CHOICES[target.id]) change(CHOICES[target.id](target.value, target));
    else settle();
  });
  AXES.forEach((axis, at) => {
    find(`weight-${axis}`).addEventListener("input", (event) => slide(at, Number(event.target.value)));
  });
  find("query").addEventListener("input", ({ target }) => change({ query: target.value, page: 0 }, { dragging: true }));
  find("own-rates").addEventListener("click", () => change({ rates: { cost: null, latency: null } }));
  for (const { name, weights } of content.presets) {
    const title = AXES.map((axis, at) => `${axis} ${weights[at] / WHOLE}`).join(", ");
    const button = element("button", { type: "button", class: "preset", title }, name);
    button.addEventListener("click", () => change({ weights }));
    find("presets").append(button);
  }
  // The first screen of a phone is the answer: choices open there when asked for.
  const fold = () => (find("choices").open = !NARROW.matches);
  NARROW.addEventListener("change", fold);
  fold();
}

// While one slider moves, the others keep the proportion that they had when it began to.
function slide(at, percent) {
  if (!slid || slid.at !== at || slid.to !== state.weights) slid = { at, from: state.weights };
  slid.to = moved(slid.from, at, percent * 10);
  change({ weights: slid.to }, { dragging: true });
}

// The snapshot that fits the new choice and most of the earlier ones; the newest of several.
function nearestSnapshot(wanted) {
  const asked = { ...content.snapshots[state.snapshot], ...wanted };
  const score = (each) =>
    16 * Object.keys(wanted).every((name) => each[name] === wanted[name]) +
    8 * (regionOf(each) === regionOf(asked)) +
    4 * (each.term === asked.term) +
    2 * (each.date === asked.date);
  return content.snapshots.reduce((best, each, at) => (score(each) >= score(content.snapshots[best]) ? at : best), 0);
}

function regionOf({ provider, region }) {
  return `${provider}/${region}`;
}

function snapshotLabel({ provider, region, term, date }) {
  return `${provider} ${region}, ${term}, ${date}`;
}

// The controls as the state says; a control that is dragged or typed into is left alone.
function showControls(view) {
  showComparison(view.state);
  showWeights(view.state);
  fill("mode", modes(), view.state.mode);
  for (const axis of METRICS) showRate(axis, view);
  const { rates, mode } = view.state;
  find("own-rates").textContent = mode;
  find("own-rates").hidden = rates.cost === null && rates.latency === null;
  showPrices(content.snapshots[view.state.snapshot]);
  showFilters(view);
  find("summary").replaceChildren(...view.rankings.map((ranking) => sentenceOf(ranking, view)));
}

function showComparison({ dataset, group, measure }) {
  const datasets = unique(content.groups.map((each) => each.dataset));
  fill("dataset", [...datasets, ...(datasets.length > 1 ? [[ALL, "all datasets"]] : [])], dataset);
  const here = content.groups.filter((each) => dataset === ALL || each.dataset === dataset);
  const all = here.length > 1 ? [[ALL, `all ${here.length} groups, each ranked apart`]] : [];
  const named = here.map(({ number, label, rows }) => [String(number), `${label} (${count(rows.length, "row")})`]);
  fill("group", dataset === ALL ? all : [...named, ...all], group === null ? ALL : String(group));
  fill("measure", content.measures.map((name, at) => [String(at), name]), String(measure));
}

function showWeights({ weights }) {
  AXES.forEach((axis, at) => {
    const percent = weights[at] / 10;
    const text = number(percent, percent % 1 ? 1 : 0);
    const slider = find(`weight-${axis}`);
    if (Number(slider.value) !== Math.round(percent)) slider.value = Math.round(percent);
    slider.setAttribute("aria-valuetext", `${text} per cent`);
    find(`weight-${axis}-value`).textContent = `${text} %`;
  });
  content.presets.forEach((preset, at) => {
    find("presets").children[at].setAttribute("aria-pressed", String(preset.weights) === String(weights));
  });
}

function showRate(axis, { state, rankings }) {
  const input = find(`rate-${axis}`);
  if (document.activeElement !== input) input.value = state.rates[axis] ?? "";
  const metric = rankings.length === 1 && rankings[0].metrics.find(({ name }) => name === axis);
  input.placeholder = metric ? (metric.rate.value === null ? "unknown" : number(metric.rate.value)) : "";
}

function showPrices(now) {
  const regions = unique(content.snapshots.map(regionOf)).map((name) => [name, name.replace("/", " ")]);
  fill("region", regions, regionOf(now));
  const here = content.snapshots.filter((each) => regionOf(each) === regionOf(now));
  fill("term", unique(here.map((each) => each.term)), now.term);
  const dates = here.filter((each) => each.term === now.term).map((each) => each.date);
  fill("date", dates.sort().reverse(), now.date);
}

function showFilters({ state, groups }) {
  const rows = rowsOfGroups(groups);
  for (const name of ["outcome", "validity"]) {
    const known = unique([...rows.map((row) => row[name]), state[name]].filter(Boolean)).sort();
    fill(name, [["", "all"], ...known], state[name]);
  }
  if (document.activeElement !== find("query")) find("query").value = state.query;
  find("intervals").checked = state.intervals;
}

// How many rows are ranked, and what one point of accuracy is worth among them.
function sentenceOf({ group, rows, why, metrics, cutoff }, { state, rankings }) {
  const name = rankings.length > 1 ? `${group.dataset}, ${group.label}: ` : "";
  const known = metrics.filter(({ rate }) => rate.value !== null);
  const worth = known.map(
    (metric) => `${number(metric.rate.value)} ${axisNamed(metric.name).unit} (${rateSource(group, metric, state)})`,
  );
  const cut = state.mode === "robust" ? `; accuracies within ${number(cutoff)} points are one` : "";
  const lacking = metrics.filter((metric) => !known.includes(metric));
  const ranked = lacking.length ? 0 : rows.length;
  const unranked = rows.length + why.size - ranked;
  const aside = `${count(unranked, "row has", "rows have")} no rank; the table says why.`;
  const sentences = [
    `${name}${count(ranked, "row is", "rows are")} ranked.`,
    unranked && aside,
    worth.length && `One point of accuracy is worth ${worth.join(" or ")}${cut}.`,
    lacking.length && `No score: ${whyNoRate(lacking[0])}. Type its exchange rate below, or sort by a column.`,
    !metrics.length && "Ranked by accuracy alone.",
    `Prices: ${snapshotLabel(content.snapshots[state.snapshot])}.`,
  ];
  return element("p", null, sentences.filter(Boolean).join(" "));
}
