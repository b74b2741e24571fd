// What is chosen -> what is shown: scores, ranks, fronts, the rows that pass the filter, and their order.
const MOST_KEPT = 200;
const kept = new Map(); // rates and fronts that hold until other rows, prices or measures are chosen

function remembered(key, compute) {
  const name = JSON.stringify(key);
  if (kept.size > MOST_KEPT) kept.clear();
  if (!kept.has(name)) kept.set(name, compute());
  return kept.get(name);
}

function chosenGroups(state) {
  if (state.group !== null) return [content.groups[state.group]];
  return content.groups.filter((group) => state.dataset === ALL || group.dataset === state.dataset);
}

// Why a row takes no part in a ranking by these axes, or null.  As harness/analysis/leaderboard.py: rankable.
function whyUnranked(row, axes, state) {
  if (row.outcome !== "ok") return ended(row);
  if (row.validity === "invalid") {
    const finding = row.findings.find(({ validity }) => validity === "invalid");
    return `invalid: ${finding ? finding.text : "see its notes"}`;
  }
  const lacking = axes.find((axis) => Number.isNaN(axisValues(axis, state).value[row.number]));
  return lacking ? `no ${lacking}: ${whyMissing(lacking, row, state)}` : null;
}

// The rows of a group that take part: {rows, why: number -> reason}.
function members(group, axes, state) {
  return remembered(["members", group.number, axes, state.measure, state.snapshot], () => {
    const why = new Map(group.rows.map((row) => [row, whyUnranked(content.rows[row], axes, state)]));
    const rows = group.rows.filter((row) => why.get(row) === null);
    rows.forEach((row) => why.delete(row));
    return { rows, why };
  });
}

function cutoffOf(group, state) {
  return group.cutoffs[content.measures[state.measure]] || 0;
}

// The rates that a paper's scores of this group were made with, by the chosen measure; else undefined.
function publishedRates(group, state) {
  return group.rates.find((each) => each.measure === content.measures[state.measure]);
}

function groupRate(group, rows, axes, axis, state) {
  const paper = state.mode === PUBLISHED ? publishedRates(group, state)?.values[axis] : undefined;
  const given = state.rates[axis] ?? paper ?? null;
  const metric = { value: axisValues(axis, state).value, higher: axisNamed(axis).higher, given };
  return remembered(["rate", group.number, axes, axis, state.mode, given, state.measure, state.snapshot], () =>
    exchangeRate(rows, axisValues("accuracy", state).value, metric, state.mode, cutoffOf(group, state)),
  );
}

// In words: where a rate is from.
function rateSource(group, { name, rate }, state) {
  if (rate.status !== "given") {
    return `mode ${state.mode === PUBLISHED ? COMPUTED[0] : state.mode}, ${count(rate.pairs, "pair")}`;
  }
  return state.rates[name] === null ? publishedRates(group, state).source : "given";
}

// Why no score follows, in the words of harness/analysis/dynascore.py.
function whyNoRate({ name, rate }) {
  const alike = rate.status === "no pair";
  const why = alike ? "no two rows differ enough in accuracy" : `rows that differ in accuracy have the same ${name}`;
  return `${why}, so nothing says how much ${name} a point of accuracy is worth`;
}

// The leaderboard of one group.
function rankingOf(group, state) {
  const share = Object.fromEntries(AXES.map((axis, at) => [axis, state.weights[at] / WHOLE]));
  const active = METRICS.filter((axis) => share[axis] > 0);
  const axes = ["accuracy", ...active];
  const { rows, why } = members(group, axes, state);
  const metrics = active.map((name) => ({
    name,
    higher: false,
    weight: share[name],
    value: axisValues(name, state).value,
    rate: groupRate(group, rows, axes, name, state),
  }));
  const found = scores(rows, axisValues("accuracy", state).value, share.accuracy, metrics);
  const ranks = found && ranksOf(found);
  return { group, rows, why, share, metrics, scores: found, ranks, cutoff: cutoffOf(group, state) };
}

// The front of one group over accuracy and another axis: its rows, their axes, and each row's state.
function frontOfGroup(group, state) {
  const { across, measure, snapshot } = state;
  const { rows } = members(group, ["accuracy", across], state);
  return remembered(["front", group.number, across, measure, snapshot], () => {
    // The other axis first: it tells most pairs apart.
    const axes = [across, "accuracy"].map((axis) => {
      const relations = axis === "accuracy" ? relationsOf(group, state) : null;
      return turned(axisValues(axis, state), axisNamed(axis).higher, relations);
    });
    const states = frontStates(rows, axes, content.rows.map((row) => row.system));
    return { rows, axes, of: new Map(rows.map((row, at) => [row, states[at]])) };
  });
}

// What Python knows of how accuracies compare in a group, pair by pair of runs.
function relationsOf(group, state) {
  const known = group.relations[content.measures[state.measure]];
  return known ? { run: content.rows.map((row) => known.runs[row.number] ?? -1), pairs: known.pairs } : null;
}

// A row that is better than this one, surely or else by value.
function betterRow(row, state) {
  const { rows, axes } = frontOfGroup(content.groups[content.rows[row].place], state);
  const same = (other) => content.rows[other].system === content.rows[row].system;
  const sure = rows.find((other) => other !== row && surelyBetter(axes, other, row, same(other)));
  return sure ?? rows.find((other) => betterByValue(axes, other, row));
}

// The rows of some groups that pass the filter.
function filtered(groups, state) {
  const words = state.query.toLowerCase().split(/\s+/).filter(Boolean);
  const passes = (row) => {
    if (state.outcome && row.outcome !== state.outcome) return false;
    if (state.validity && row.validity !== state.validity) return false;
    const texts = [row.system, row.profile, placed(row, state).type, row.outcome, row.origin].join("\n").toLowerCase();
    return words.every((word) => texts.includes(word));
  };
  return groups.flatMap((group) => group.rows).filter((row) => passes(content.rows[row]));
}

function computeView(state) {
  const groups = chosenGroups(state);
  const blank = (value) => new Array(content.rows.length).fill(value);
  const view = { state, groups, score: blank(NaN), rank: blank(NaN), why: blank(null), frontOf: blank(null) };
  view.rankings = groups.map((group) => rankingOf(group, state));
  for (const { group, rows, why, scores, ranks, metrics } of view.rankings) {
    why.forEach((reason, row) => (view.why[row] = reason));
    const lacking = metrics.find((metric) => metric.rate.value === null);
    rows.forEach((row, at) => {
      if (scores) [view.score[row], view.rank[row]] = [scores[at], ranks[at]];
      else view.why[row] = whyNoRate(lacking);
    });
    frontOfGroup(group, state).of.forEach((found, row) => (view.frontOf[row] = found));
  }
  view.rows = sorted(filtered(groups, state), view);
  return view;
}
