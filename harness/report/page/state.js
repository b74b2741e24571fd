// What is chosen on the page, and its one place: the fragment of the URL.  Whatever a fragment holds, what is not a
// choice that this page has is passed over.
(function (page) {
  "use strict";

  const AXES = ["accuracy", "cost", "latency"];
  const WHOLE = 1000; // weights are thousandths
  const PUBLISHED = "published"; // the paper's rates; computed ones as "reference" where it has none
  const COMPUTED = ["reference", "robust"];
  const LONGEST = 200;
  const ALL = "*";

  function largest(groups) {
    return groups.reduce((best, group) => (best === null || group.rows.length > best.rows.length ? group : best), null);
  }

  function thousandths(weights) {
    const sum = AXES.reduce((total, axis) => total + (weights[axis] || 0), 0);
    return balanced(AXES.map((axis) => ((weights[axis] || 0) / sum) * WHOLE));
  }

  // Whole numbers that sum to WHOLE, each next to what was asked for; the largest takes what rounding leaves.
  function balanced(parts) {
    const rounded = parts.map((part) => Math.round(part));
    const left = WHOLE - rounded.reduce((sum, part) => sum + part, 0);
    rounded[rounded.indexOf(Math.max(...rounded))] += left;
    return rounded;
  }

  function plain() {
    const content = page.content;
    const group = largest(content.groups);
    const usual = content.presets.length ? content.presets[0].weights : { accuracy: 0.5, cost: 0.25, latency: 0.25 };
    return {
      dataset: group ? group.dataset : ALL,
      group: group ? group.number : null,
      measure: 0,
      weights: thousandths(usual),
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
      envelope: "",
      intervals: true,
      evidence: null,
    };
  }

  function modes() {
    return page.content.groups.some((group) => group.rates.length) ? [PUBLISHED, ...COMPUTED] : COMPUTED;
  }

  // The axes that accuracy can be drawn against.
  function across() {
    return page.content.axes.map((axis) => axis.name).filter((name) => name !== "accuracy");
  }

  function sorts() {
    return page.content.columns.map((column) => column.name);
  }

  function positive(text) {
    const value = Number(text);
    return /^[0-9.eE+-]{1,24}$/.test(text) && Number.isFinite(value) && value > 0 ? value : undefined;
  }

  // How each choice is written and read; read gives the changes to make, or undefined for an unknown choice.
  const KEYS = {
    d: {
      write: (state) => (state.group === null ? state.dataset : undefined),
      read: (text) => {
        const names = new Set(page.content.groups.map((group) => group.dataset));
        const known = names.has(text) || (text === ALL && names.size > 1);
        return known ? { dataset: text, group: null } : undefined;
      },
    },
    g: {
      write: (state) => (state.group === null ? undefined : page.content.groups[state.group].id),
      read: (text) => {
        const group = page.content.groups.find((each) => each.id === text);
        return group && { dataset: group.dataset, group: group.number };
      },
    },
    m: {
      write: (state) => page.content.measures[state.measure],
      read: (text) => {
        const measure = page.content.measures.indexOf(text);
        return measure < 0 ? undefined : { measure };
      },
    },
    w: {
      write: (state) => state.weights.map((weight) => weight / WHOLE).join(","),
      read: (text) => {
        const parts = text.split(",").map((part) => (/^[0-9.]{1,8}$/.test(part) ? Number(part) * WHOLE : NaN));
        const sum = parts.reduce((total, part) => total + part, 0);
        return parts.length === 3 && Math.abs(sum - WHOLE) < 3 ? { weights: balanced(parts) } : undefined;
      },
    },
    mode: {
      write: (state) => state.mode,
      read: (text) => (modes().includes(text) ? { mode: text } : undefined),
    },
    p: {
      write: (state) => snapshotName(page.content.snapshots[state.snapshot]),
      read: (text) => {
        const snapshot = page.content.snapshots.findIndex((each) => snapshotName(each) === text);
        return snapshot < 0 ? undefined : { snapshot };
      },
    },
    s: {
      write: (state) => (state.descending ? "-" : "") + state.sort,
      read: (text) => {
        const sort = text.replace(/^-/, "");
        return sorts().includes(sort) ? { sort, descending: text.startsWith("-") } : undefined;
      },
    },
    n: {
      write: (state) => String(state.page + 1),
      read: (text) => (/^[1-9][0-9]{0,5}$/.test(text) ? { page: Number(text) - 1 } : undefined),
    },
    q: {
      write: (state) => state.query,
      read: (text) => ({ query: text.slice(0, LONGEST) }),
    },
    o: {
      write: (state) => state.outcome,
      read: (text) => (page.content.rows.some((row) => row.outcome === text) ? { outcome: text } : undefined),
    },
    v: {
      write: (state) => state.validity,
      read: (text) => (page.content.rows.some((row) => row.validity === text) ? { validity: text } : undefined),
    },
    x: {
      write: (state) => state.across,
      read: (text) => (across().includes(text) ? { across: text } : undefined),
    },
    hw: {
      write: (state) => state.envelope,
      read: (text) => (/^[0-9]{1,4}-[0-9]{1,4}$/.test(text) ? { envelope: text } : undefined),
    },
    i: {
      write: (state) => (state.intervals ? "1" : "0"),
      read: (text) => (["0", "1"].includes(text) ? { intervals: text === "1" } : undefined),
    },
    e: {
      write: (state) => (state.evidence === null ? undefined : `${keyOf(state.evidence.row)},${state.evidence.column}`),
      read: (text) => {
        const at = text.lastIndexOf(",");
        const row = page.content.rows.findIndex((each) => each.key === text.slice(0, at));
        const column = text.slice(at + 1);
        return row >= 0 && sorts().includes(column) ? { evidence: { row, column } } : undefined;
      },
    },
  };
  for (const axis of ["cost", "latency"]) {
    KEYS[`r${axis}`] = {
      write: (state) => (state.rates[axis] === null ? undefined : String(state.rates[axis])),
      read: (text, state) => {
        const rate = positive(text);
        return rate === undefined ? undefined : { rates: { ...state.rates, [axis]: rate } };
      },
    };
  }

  function keyOf(row) {
    return page.content.rows[row].key;
  }

  function snapshotName(snapshot) {
    return [snapshot.provider, snapshot.region, snapshot.term, snapshot.date].join(",");
  }

  // What the page opens with: the usual, or the view that it was made with.
  function defaults() {
    return applied(plain(), page.content.view);
  }

  function parse(fragment) {
    return applied(defaults(), fragment.replace(/^#/, ""));
  }

  function applied(state, fragment) {
    let asked;
    try {
      asked = new URLSearchParams(fragment);
    } catch {
      return state;
    }
    for (const [key, choice] of Object.entries(KEYS)) {
      const text = asked.get(key);
      const changes = text === null ? undefined : choice.read(text, state);
      if (changes !== undefined) state = { ...state, ...changes };
    }
    return state;
  }

  // Only what differs from the defaults; "" for a page as it opens.
  function format(state) {
    const usual = defaults();
    const written = new URLSearchParams();
    for (const [key, choice] of Object.entries(KEYS)) {
      const text = choice.write(state);
      if (text !== undefined && text !== choice.write(usual)) written.set(key, text);
    }
    return written.toString().replaceAll("%2C", ",").replaceAll("%40", "@").replaceAll("%2F", "/");
  }

  // One weight is moved to `value`; the others keep their proportion to each other (in `base`) and fill what is left.
  function moved(base, axis, value) {
    const others = [0, 1, 2].filter((each) => each !== axis);
    const rest = WHOLE - value;
    const sum = base[others[0]] + base[others[1]];
    const first = Math.round(sum ? (rest * base[others[0]]) / sum : rest / 2);
    const weights = [0, 0, 0];
    weights[axis] = value;
    weights[others[0]] = first;
    weights[others[1]] = rest - first;
    return weights;
  }

  page.state = { AXES, WHOLE, PUBLISHED, COMPUTED, modes, across, ALL, parse, format, moved, balanced, thousandths, largest };
})((window.harnessPage = window.harnessPage || {}));
