// What a number is made of: `harness explain`'s texts, and formulas of what the page itself computes.
(function (page) {
  "use strict";

  const { number, interval, count, plain } = page.numbers;
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

  function samples(row) {
    if (row.queries === undefined) return "no samples could be read";
    const fresh = row.jobs > 1 ? ` in ${count(row.jobs, "process", "processes")}` : "";
    return `${count(row.queries, "query", "queries")}, each timed ${count(row.trials, "time")}${fresh}`;
  }

  const MADE_OF = {
    rank: score,
    score,
    instance: prices,
    cost: prices,
    front,
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
      const how = page.view.rateSource(ranking.group, metric, view.state);
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

  function prices(row, view) {
    const snapshot = page.content.snapshots[view.state.snapshot];
    const source = data.text(snapshot.source);
    const asked = row.publishedType === undefined ? null : `the paper's type: ${data.text(row.publishedType)}`;
    const from = `prices: ${snapshot.provider} ${snapshot.region}, ${snapshot.term}, ${snapshot.date} (${source})`;
    return [from, asked].filter(Boolean);
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

  function filled(template, figures) {
    return template.replace(/\{(\w+)\}/g, (_, name) => figures[name]);
  }

  function sentence(text) {
    return text.slice(0, 1).toUpperCase() + text.slice(1) + (text.endsWith(".") ? "" : ".");
  }

  function valueOf(name, row, view) {
    return data.read(name, row, view.settings).value || 0;
  }

  // The cost at the chosen prices, in the words of harness/report/explain.py.
  function costText(row, view) {
    const templates = page.content.explained.cost;
    const at = data.placed(row, view.state.snapshot);
    const snapshot = page.content.snapshots[view.state.snapshot];
    const item = data.cost(row, view.state.snapshot);
    const note = data.text(at.note);
    if (item.value === null) return filled(templates.none, { reason: item.reason || note || "no price" });
    const price = plain(at.usd, 6);
    const figures = {
      usd: number(item.value).replaceAll(",", ""),
      mean_s: plain(valueOf("latency", row, view) / 1e3, 4),
      rate: plain(valueOf("throughput", row, view), 4),
      price,
    };
    const machine = {
      ...{ type: data.text(at.type), architecture: data.text(at.architecture), vcpus: at.vcpus },
      ...{ memory: plain(at.memory / 2 ** 30, 6), price },
      ...{ term: snapshot.term, region: snapshot.region, date: snapshot.date },
    };
    const model = row.scenario === "single_stream" ? templates.sequential : templates.saturated;
    return [filled(model, figures), filled(templates.machine, machine), note && sentence(note)].filter(Boolean).join(" ");
  }

  // Paragraphs as Python stores them, numbers of texts, as [title, text].
  function paragraphs(short) {
    return short.map(([title, ...pieces]) => [data.text(title), pieces.map(data.text).join(" ")]);
  }

  // How the row was made: what `harness explain` prints of it.  An index's cost is known at the first prices alone.
  function explained(row, view) {
    const later = { Cost: () => costText(row, view), "Stored jobs": () => row.keys.join(", ") };
    const opening = view.state.snapshot === page.content.snapshot;
    const known = paragraphs(row.explained).filter(([title]) => opening || title !== "Index cost");
    return known.map(([title, text]) => [title, text || later[title]()]);
  }

  // The title of the paragraph on a column's number.
  function titleOf(column) {
    return page.columns.named(column).title || null;
  }

  // What a column means and how it is made.
  function meaning(column, view) {
    const { measures } = page.content.explained;
    return paragraphs(column === "accuracy" ? measures[view.state.measure] : page.columns.named(column).meaning);
  }

  // What to do about the causes of doubt, each once.
  function remedies(row) {
    const causes = (row.findings || []).map(([cause]) => page.content.explained.causes[cause]);
    const found = causes.flatMap((short) => paragraphs(short).slice(1).map(([, text]) => text));
    return found.length ? [["What to do", Array.from(new Set(found)).join(" ")]] : [];
  }

  page.parts = { MADE_OF, bounded, samples, full, explained, titleOf, meaning, remedies };
})((window.harnessPage = window.harnessPage || {}));
