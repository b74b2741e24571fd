// What a number is made of: its formula with the figures in it, and the words that go with them.
(function (page) {
  "use strict";

  const { number, interval, bytes, count } = page.numbers;
  const { data } = page;

  function full(value) {
    return value === null || Number.isNaN(value) ? page.numbers.MISSING : String(Number(value.toPrecision(6)));
  }

  function bounded(item, unit) {
    if (item.value === null) return `${page.numbers.MISSING} (${item.reason || "not measured"})`;
    const ends = interval(item.value, item.low, item.high);
    const said = item.reason ? `; ${item.reason}` : "";
    return `${number(item.value)}${unit ? ` ${unit}` : ""}${ends ? ` (95 %: ${ends})` : ""}${said}`;
  }

  function times(item, factor) {
    const scaled = (value) => (value === null ? null : value * factor);
    return { value: scaled(item.value), low: scaled(item.low), high: scaled(item.high), reason: item.reason };
  }

  function samples(row) {
    if (row.queries === undefined) return "no samples could be read";
    const fresh = row.jobs > 1 ? ` in ${count(row.jobs, "process", "processes")}` : "";
    return `${count(row.queries, "query", "queries")}, each timed ${count(row.trials, "time")}${fresh}`;
  }

  const MADE_OF = {
    rank: score,
    score,
    accuracy: (row, view) => {
      const name = page.content.measures[view.state.measure];
      const item = data.figure(row.measures && row.measures[view.state.measure]);
      const judged =
        row.judged === undefined ? "" : `, the mean over ${count(row.judged, "judged query", "judged queries")}`;
      const unjudged = row.unjudged ? `; ${count(row.unjudged, "query has", "queries have")} no judgements` : "";
      return [
        `points = 100 × ${name} = 100 × ${item.value === null ? bounded(item) : full(item.value)}${judged}${unjudged}`,
        item.low === null ? "no interval is known" : `${name} ${bounded(item)}; over queries`,
      ];
    },
    latency: (row) => [
      `the mean of all timed samples: ${samples(row)}`,
      `measured again, other queries, fresh processes: ${bounded(times(data.figure(row.mean), 1e3), "ms")}`,
      `of that, other queries alone: ${bounded(times(data.figure(row.like), 1e3), "ms")}`,
      `these queries alone, other processes: ${bounded(times(data.figure(row.these), 1e3), "ms")}`,
    ],
    p95: (row) => [
      `the smallest latency that at least 95 % of all samples do not exceed: ${samples(row)}`,
      ...Object.entries(row.atMost || {}).map(
        ([name, item]) => `${name} is at most (confidence 0.99): ${bounded(times(data.figure(item), 1e3), "ms")}`,
      ),
    ],
    cost,
    memory: (row) => [
      row.anon === undefined
        ? "not measured"
        : `${number(row.anon, 0)} bytes / 2²⁰: anonymous and shared memory, no file pages`,
      `limit: ${bytes(row.memory)}; charged in all, page cache included: ${bytes(row.cgroup)}`,
    ],
    index: (row) => [
      row.index === undefined ? "not measured" : `${number(row.index, 0)} bytes / 2²⁰`,
      row.build === undefined
        ? "no build of it is stored with this result"
        : `built in ${number(row.build)} s on ${data.text(row.builtOn) || "an unknown machine, or several"}, once` +
          (row.documents ? `, ${count(row.documents, "document")}` : ""),
      ...(row.builtNotes || []).map((note) => data.text(note)),
    ],
    throughput: (row) => [bounded(data.figure(row.throughput), "queries/s")],
    instance: (row, view) => instance(row, view),
    front,
    outcome: (row) => [row.outcome === "ok" ? "ok: all that was asked for was measured" : data.ended(row)],
    validity: (row) => [
      (row.findings || []).length ? "what was found is listed below" : `${row.validity}: nothing was found against it`,
    ],
  };

  function term(weight, value, rate, unit) {
    return `${weight} × ${full(value)}${rate === null ? "" : ` / ${full(rate)}`}${unit ? ` ${unit}` : ""}`;
  }

  function score(row, view) {
    const ranking = view.rankings.find((each) => each.group.number === row.place);
    const why = view.why[row.number];
    if (why) return [`not ranked: ${why}`];
    const value = (axis) => data.column(axis, view.settings).value[row.number];
    const lines = [];
    const terms = [term(ranking.share.accuracy, value("accuracy"), null)];
    for (const metric of ranking.metrics) terms.push(term(metric.weight, value(metric.name), metric.rate.value));
    lines.push(`Dynascore = ${terms.join(" − ")} = ${full(view.score[row.number])}`);
    lines.push(
      "weight × accuracy (points) − weight × value / exchange rate (AMRS) for each of the others; higher is better",
    );
    for (const metric of ranking.metrics) {
      const unit = page.content.axes.find((axis) => axis.name === metric.name).unit;
      const how =
        metric.rate.status === "given" ? "given" : `mode ${view.state.mode}, ${count(metric.rate.pairs, "pair")}`;
      lines.push(`exchange rate of ${metric.name}: ${full(metric.rate.value)} ${unit} for a point (${how})`);
    }
    lines.push(`rank ${view.rank[row.number]} of ${count(ranking.rows.length, "row")} of this comparison group`);
    return [...lines, ...holds(row, view, ranking)];
  }

  // How far the rank holds, and the systems that it hangs on.
  function holds(row, view, ranking) {
    const found = page.holds.of(row.number, view);
    if (!found) return [];
    const systems = [...new Set(ranking.rows.map((number) => page.content.rows[number].system))].sort();
    const draws = page.content.perturbations.length;
    const ends = (span) => (span[0] === span[1] ? String(span[0]) : `${span[0]} to ${span[1]}`);
    const said = (span, how) => (typeof span === "string" ? span : `${ends(span)}${how}`);
    return [
      `rank with other queries: ${said(found.queries, `; 95 % over ${draws} resamples`)}`,
      `rank without each other system: ${said(found.systems, "")}`,
      `rank with weights moved by up to ${page.content.perturbation}: ${said(found.weights, `; 95 % over ${draws} draws`)}`,
      `set of systems: ${systems.join(", ")}`,
    ];
  }

  function cost(row, view) {
    const at = data.placed(row, view.state.snapshot);
    const item = data.cost(row, view.state.snapshot);
    if (item.value === null) return [`no cost: ${item.reason || data.ended(row)}`];
    const closed = row.scenario === "single_stream";
    const [formula, meaning] = page.content.formulas[closed ? "sequential" : "saturated"];
    const made = closed
      ? `${full(data.figure(row.mean).value)} s × ${at.usd} US$/h / 3,600 × 1,000,000`
      : `${at.usd} US$/h / (${full(data.figure(row.throughput).value)} queries/s × 3,600) × 1,000,000`;
    return [`${made} = ${full(item.value)} US$`, `${formula}: ${meaning}`, ...instance(row, view)];
  }

  function instance(row, view) {
    const at = data.placed(row, view.state.snapshot);
    const snapshot = page.content.snapshots[view.state.snapshot];
    const source = data.text(snapshot.source);
    const note = data.text(at.note);
    const asked = row.publishedType === undefined ? null : `the paper's type: ${data.text(row.publishedType)}`;
    if (at.usd === undefined) return [note || "no machine is known", asked].filter(Boolean);
    const gpus = at.gpus ? `, ${count(at.gpus, "GPU")}` : "";
    return [
      `${data.text(at.type)} (${data.text(at.architecture)}; ${at.vcpus} vCPUs, ${bytes(at.memory)}${gpus}): ${at.usd} US$/h`,
      `prices: ${snapshot.provider} ${snapshot.region}, ${snapshot.term}, ${snapshot.date} (${source})`,
      note,
      asked,
    ].filter(Boolean);
  }

  function front(row, view) {
    const found = view.frontOf[row.number];
    const axis = page.content.axes.find((each) => each.name === view.state.across);
    const said = `over accuracy and ${axis.label}`;
    if (found === null) return [`not on the picture ${said}: it lacks a number`];
    if (found === "front") return [`on the Pareto front ${said}: no row is at least as good on both and better on one`];
    const other = page.content.rows[page.view.above(row.number, view.state)];
    const by = `${other.system} on ${other.profile}`;
    return found === "dominated"
      ? [`dominated ${said}: the intervals leave no doubt that ${by} is better`]
      : [`contested ${said}: by their values ${by} is better, but the intervals do not say so`];
  }

  page.parts = { MADE_OF, bounded, times, samples, full };
})((window.harnessPage = window.harnessPage || {}));
