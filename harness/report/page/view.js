// What is chosen -> what is shown: who is ranked, scores, ranks, fronts, what passes the filter, in which order.
(function (page) {
  "use strict";

  const METRICS = ["cost", "latency"];
  const kept = new Map(); // rates and fronts that hold until other rows, prices or measures are chosen

  function remembered(key, make) {
    if (kept.size > 200) kept.clear();
    if (!kept.has(key)) kept.set(key, make());
    return kept.get(key);
  }

  function settings(state) {
    return { measure: state.measure, snapshot: state.snapshot };
  }

  function shownGroups(state) {
    if (state.group !== null) return [page.content.groups[state.group]];
    return page.content.groups.filter((group) => state.dataset === page.state.ALL || group.dataset === state.dataset);
  }

  // Why a row takes no part in a ranking by these axes; null where it does.  As harness/analysis/leaderboard.py: rankable.
  function whyUnranked(row, axes, chosen) {
    if (row.outcome !== "ok") return page.data.ended(row);
    if (row.validity === "invalid") {
      const found = (row.findings || []).find(([, worth]) => worth === "invalid");
      return `invalid: ${found ? page.data.text(found[2]) : "see its notes"}`;
    }
    for (const axis of axes) {
      if (Number.isNaN(page.data.column(axis, chosen).value[row.number])) {
        return `no ${axis}: ${page.data.whyNot(axis, row, chosen)}`;
      }
    }
    return null;
  }

  // The rows of a group that take part: {rows, why: number -> reason}.
  function members(group, axes, chosen) {
    return remembered(`members ${group.number} ${axes} ${chosen.measure} ${chosen.snapshot}`, () => {
      const why = new Map();
      const rows = [];
      for (const number of group.rows) {
        const reason = whyUnranked(page.content.rows[number], axes, chosen);
        if (reason === null) rows.push(number);
        else why.set(number, reason);
      }
      return { rows, why };
    });
  }

  function cutoff(group, measure) {
    return group.cutoffs[page.content.measures[measure]] || 0;
  }

  // The rates that a paper's scores of this group were made with, by the chosen measure; else undefined.
  function publishedRates(group, state) {
    return group.rates.find((each) => each.measure === page.content.measures[state.measure]);
  }

  function givenRate(group, axis, state) {
    if (state.rates[axis] !== null || state.mode !== page.state.PUBLISHED) return state.rates[axis];
    return publishedRates(group, state)?.values[axis] ?? null;
  }

  function rate(group, rows, axes, axis, state) {
    const chosen = settings(state);
    const given = givenRate(group, axis, state);
    const key = ["rate", group.number, axes, axis, state.mode, given, chosen.measure, chosen.snapshot].join(" ");
    const higher = page.content.axes.find((each) => each.name === axis).higher;
    const accuracy = page.data.column("accuracy", chosen).value;
    const metric = { value: page.data.column(axis, chosen).value, higher, given };
    return remembered(key, () => page.dynascore.rate(rows, accuracy, metric, state.mode, cutoff(group, state.measure)));
  }

  // In words: where a rate is from.
  function rateSource(group, metric, state) {
    if (metric.rate.status !== "given") {
      const mode = state.mode === page.state.PUBLISHED ? page.state.COMPUTED[0] : state.mode;
      return `mode ${mode}, ${page.numbers.count(metric.rate.pairs, "pair")}`;
    }
    if (state.rates[metric.name] !== null) return "given";
    return publishedRates(group, state).source;
  }

  // The leaderboard of one group.
  function ranking(group, state) {
    const chosen = settings(state);
    const share = Object.fromEntries(page.state.AXES.map((axis, at) => [axis, state.weights[at] / page.state.WHOLE]));
    const active = METRICS.filter((axis) => share[axis] > 0);
    const axes = ["accuracy", ...active];
    const { rows, why } = members(group, axes, chosen);
    const accuracy = page.data.column("accuracy", chosen).value;
    const metrics = active.map((axis) => ({
      name: axis,
      higher: false,
      weight: share[axis],
      value: page.data.column(axis, chosen).value,
      rate: rate(group, rows, axes, axis, state),
    }));
    const scores = page.dynascore.scores(rows, accuracy, share.accuracy, metrics);
    const ranked = scores && page.dynascore.ranks(scores);
    return { group, rows, why, share, metrics, scores, ranked, cutoff: cutoff(group, state.measure) };
  }

  // The front of one group over accuracy and another axis: who is on the picture, and where each stands.
  function front(group, state, across) {
    const chosen = settings(state);
    const { rows } = members(group, ["accuracy", across], chosen);
    return remembered(["front", group.number, across, chosen.measure, chosen.snapshot].join(" "), () => {
      // The other axis first: it tells most pairs apart.
      const axes = [across, "accuracy"].map((axis) =>
        page.front.turned(
          page.data.column(axis, chosen),
          page.content.axes.find((each) => each.name === axis).higher,
          axis === "accuracy" ? related(group, state.measure) : null,
        ),
      );
      const states = page.front.states(rows, axes, systems());
      return { rows, axes, of: new Map(rows.map((row, at) => [row, states[at]])) };
    });
  }

  // What Python knows of how accuracies compare in a group, pair by pair of runs.
  function related(group, measure) {
    const known = group.relations[page.content.measures[measure]];
    if (!known) return null;
    const run = new Int32Array(page.content.rows.length).fill(-1);
    for (const [row, number] of Object.entries(known.runs)) run[Number(row)] = number;
    return { run, pairs: known.pairs };
  }

  function systems() {
    return remembered("systems", () => {
      const numbers = new Map();
      return Int32Array.from(page.content.rows, (row) => {
        if (!numbers.has(row.system)) numbers.set(row.system, numbers.size);
        return numbers.get(row.system);
      });
    });
  }

  // A row that is better than this one, surely or by value alone; null where there is none.
  function above(row, state) {
    const { rows, axes } = front(page.content.groups[page.content.rows[row].place], state, state.across);
    const of = systems();
    const sure = rows.find((other) => other !== row && page.front.surely(axes, other, row, of[other] === of[row]));
    const found = sure === undefined ? rows.find((other) => page.front.byValue(axes, other, row)) : sure;
    return found === undefined ? null : found;
  }

  function instanceOf(row, state) {
    return page.data.text(page.data.placed(row, state.snapshot).type);
  }

  // What the filter's words are looked for in.
  function haystacks(snapshot) {
    return remembered(`words ${snapshot}`, () =>
      page.content.rows.map((row) =>
        [row.system, row.profile, instanceOf(row, { snapshot }) || "", row.outcome, row.origin || ""]
          .join("\n")
          .toLowerCase(),
      ),
    );
  }

  function filtered(groups, state) {
    const words = state.query.toLowerCase().split(/\s+/).filter(Boolean);
    const texts = haystacks(state.snapshot);
    const found = [];
    for (const group of groups) {
      for (const number of group.rows) {
        const row = page.content.rows[number];
        if (state.outcome && row.outcome !== state.outcome) continue;
        if (state.validity && row.validity !== state.validity) continue;
        if (words.every((word) => texts[number].includes(word))) found.push(number);
      }
    }
    return found;
  }

  function compute(state) {
    const groups = shownGroups(state);
    const many = page.content.rows.length;
    const score = new Float64Array(many).fill(NaN);
    const rank = new Float64Array(many).fill(NaN);
    const why = new Array(many).fill(null);
    const frontOf = new Array(many).fill(null);
    const rankings = groups.map((group) => ranking(group, state));
    for (const each of rankings) {
      each.why.forEach((reason, row) => (why[row] = reason));
      each.rows.forEach((row, at) => {
        if (each.scores) {
          score[row] = each.scores[at];
          rank[row] = each.ranked.ranks[at];
        } else {
          const missing = each.metrics.find((metric) => metric.rate.value === null);
          why[row] = `no score: the exchange rate of ${missing.name} has the status “${missing.rate.status}”`;
        }
      });
      front(each.group, state, state.across).of.forEach((found, row) => (frontOf[row] = found));
    }
    const view = { state, settings: settings(state), groups, rankings, score, rank, why, frontOf };
    view.rows = page.columns.sorted(filtered(groups, state), view);
    return view;
  }

  page.view = { compute, members, front, above, rate, rateSource, instanceOf, settings };
})((window.harnessPage = window.harnessPage || {}));
