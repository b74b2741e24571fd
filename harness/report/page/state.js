// The choices on the page, which the fragment of the URL holds.  Unknown choices in a fragment are ignored.
const AXES = ["accuracy", "cost", "latency"];
const METRICS = ["cost", "latency"];
const WHOLE = 1000; // weights are thousandths
const PUBLISHED = "published"; // the paper's rates; computed ones as "reference" where it has none
const COMPUTED = ["reference", "robust"];
const LONGEST_QUERY = 200;
const ALL = "*";

function largestGroup(groups) {
  return groups.reduce((best, group) => (best && best.rows.length >= group.rows.length ? best : group), null);
}

// Whole numbers that sum to WHOLE: the parts rounded, and the largest takes the rest.
function balanced(parts) {
  const rounded = parts.map((part) => Math.round(part));
  rounded[rounded.indexOf(Math.max(...rounded))] += WHOLE - rounded.reduce((sum, part) => sum + part, 0);
  return rounded;
}

function usualState() {
  const group = largestGroup(content.groups);
  return {
    dataset: group ? group.dataset : ALL,
    group: group ? group.number : null,
    measure: 0,
    weights: content.presets[0].weights,
    mode: modes()[0],
    rates: { cost: null, latency: null },
    snapshot: content.snapshot,
    query: "",
    outcome: "",
    validity: "",
    sort: "rank",
    descending: false,
    page: 0,
    across: "cost",
    traffic: content.bills.traffic.queries_per_month,
    envelope: "",
    intervals: true,
    evidence: null,
  };
}

function modes() {
  return content.groups.some((group) => group.rates.length) ? [PUBLISHED, ...COMPUTED] : COMPUTED;
}

// The axes that accuracy can be drawn against, with their headings.
function acrossAxes() {
  return content.axes.map(({ name, heading }) => [name, heading]).filter(([name]) => name !== "accuracy");
}

function positive(text) {
  const value = Number(text);
  return /^[0-9.eE+-]{1,24}$/.test(text) && Number.isFinite(value) && value > 0 ? value : undefined;
}

// A choice that is one of some names, or the place of one of them.
function oneOf(key, names) {
  const read = (text) => (names().includes(text) ? { [key]: text } : undefined);
  return { write: (state) => state[key], read };
}

function placeIn(key, names) {
  const read = (text) => (names().includes(text) ? { [key]: names().indexOf(text) } : undefined);
  return { write: (state) => names()[state[key]], read };
}

function rateOf(axis) {
  const read = (text, { rates }) => positive(text) && { rates: { ...rates, [axis]: positive(text) } };
  return { write: ({ rates }) => rates[axis], read };
}

function matching(pattern, write, read) {
  return { write, read: (text) => (pattern.test(text) ? read(text) : undefined) };
}

// How each choice is written and read; read returns its changes, or undefined if it is unknown.
const KEYS = {
  d: {
    write: (state) => (state.group === null ? state.dataset : undefined),
    read: (text) => {
      const names = new Set(content.groups.map((group) => group.dataset));
      return names.has(text) || (text === ALL && names.size > 1) ? { dataset: text, group: null } : undefined;
    },
  },
  g: {
    write: (state) => content.groups[state.group]?.id,
    read: (text) => {
      const group = content.groups.find((each) => each.id === text);
      return group && { dataset: group.dataset, group: group.number };
    },
  },
  m: placeIn("measure", () => content.measures),
  w: {
    write: (state) => state.weights.map((weight) => weight / WHOLE).join(","),
    read: (text) => {
      const parts = text.split(",").map((part) => (/^[0-9.]{1,8}$/.test(part) ? Number(part) * WHOLE : NaN));
      const sum = parts.reduce((total, part) => total + part, 0);
      return parts.length === 3 && Math.abs(sum - WHOLE) < 3 ? { weights: balanced(parts) } : undefined;
    },
  },
  mode: oneOf("mode", modes),
  p: placeIn("snapshot", () =>
    content.snapshots.map(({ provider, region, term, date }) => [provider, region, term, date].join(",")),
  ),
  s: {
    write: (state) => (state.descending ? "-" : "") + state.sort,
    read: (text) => {
      const sort = text.replace(/^-/, "");
      return columnNamed(sort) && { sort, descending: text.startsWith("-") };
    },
  },
  n: matching(/^[1-9][0-9]{0,5}$/, ({ page }) => page + 1, (text) => ({ page: Number(text) - 1 })),
  q: matching(/^/, ({ query }) => query, (text) => ({ query: text.slice(0, LONGEST_QUERY) })),
  o: oneOf("outcome", () => content.rows.map((row) => row.outcome)),
  v: oneOf("validity", () => content.rows.map((row) => row.validity)),
  x: oneOf("across", () => acrossAxes().map(([name]) => name)),
  t: matching(/^/, ({ traffic }) => String(traffic), (text) => {
    const traffic = queriesIn(text);
    return traffic === null ? undefined : { traffic };
  }),
  hw: matching(/^[0-9]{1,4}-[0-9]{1,4}$/, ({ envelope }) => envelope, (envelope) => ({ envelope })),
  i: matching(/^[01]$/, ({ intervals }) => Number(intervals), (text) => ({ intervals: text === "1" })),
  e: {
    write: ({ evidence }) => evidence && `${content.rows[evidence.row].key},${evidence.column}`,
    read: (text) => {
      const at = text.lastIndexOf(",");
      const row = content.rows.findIndex((each) => each.key === text.slice(0, at));
      const column = text.slice(at + 1);
      return row >= 0 && columnNamed(column) ? { evidence: { row, column } } : undefined;
    },
  },
  rcost: rateOf("cost"),
  rlatency: rateOf("latency"),
};

// What the page opens with: the usual state, or the view that it was made with.
function openingState() {
  return applied(usualState(), content.view);
}

function parse(fragment) {
  return applied(openingState(), fragment.replace(/^#/, ""));
}

function applied(state, fragment) {
  const asked = new URLSearchParams(fragment);
  return Object.entries(KEYS).reduce(
    (before, [key, choice]) => ({ ...before, ...(asked.has(key) ? choice.read(asked.get(key), before) : {}) }),
    state,
  );
}

// Only what differs from the opening state; "" for a page as it opens.
function format(state) {
  const opening = openingState();
  const written = new URLSearchParams();
  for (const [key, choice] of Object.entries(KEYS)) {
    const text = choice.write(state) ?? undefined;
    if (text !== undefined && text !== choice.write(opening)) written.set(key, text);
  }
  return written.toString().replaceAll("%2C", ",").replaceAll("%40", "@").replaceAll("%2F", "/");
}

// One weight is moved to `value`; the others keep their proportion to each other (in `base`) and fill the rest.
function moved(base, axis, value) {
  const [one, other] = [0, 1, 2].filter((each) => each !== axis);
  const rest = WHOLE - value;
  const sum = base[one] + base[other];
  const weights = [];
  weights[axis] = value;
  weights[one] = Math.round(sum ? (rest * base[one]) / sum : rest / 2);
  weights[other] = rest - weights[one];
  return weights;
}
