// The evidence of one number, in a dialog: how it was made, its trust, its samples, its job, how to repeat it.
(function (page) {
  "use strict";

  const { element, find } = page.elements;
  const { number, bytes, count } = page.numbers;
  const { data, parts } = page;
  let open = null; // what is shown: {row, column}
  let drawn = []; // charts in the dialog

  function build() {
    const dialog = find("evidence");
    dialog.addEventListener("close", closed);
    dialog.addEventListener("click", (event) => {
      if (event.target === dialog) dialog.close(); // beside it
    });
  }

  // As the state says; called after the table was made.
  function show(view) {
    const wanted = view.state.evidence;
    const dialog = find("evidence");
    if (wanted === null) {
      if (dialog.open) dialog.close();
      return;
    }
    const same = open && dialog.open && open.row === wanted.row && open.column === wanted.column;
    if (same) return;
    open = wanted;
    fillIn(dialog, page.content.rows[wanted.row], wanted.column, view);
    if (!dialog.open) dialog.showModal();
    dialog.scrollTop = 0;
    drawn = page.charts.distribution(page.content.rows[wanted.row], dialog); // a closed dialog has no width
  }

  function closed() {
    const was = open;
    open = null;
    for (const chart of drawn) chart.dispose();
    drawn = [];
    if (page.main.current().evidence !== null) page.main.change({ evidence: null });
    const back = was && page.table.button(was.row, was.column);
    if (back) back.focus();
  }

  function label(column, view) {
    return page.columns.header(page.columns.named(column), view);
  }

  function headline(row, column, view) {
    if (page.columns.named(column).figure) {
      const item = data.read(column, row, view.settings);
      return item.value === null ? `— ${data.whyNot(column, row, view.settings)}` : parts.bounded(item);
    }
    if (column === "rank" || column === "score") {
      const value = view[column][row.number];
      return Number.isNaN(value) ? "—" : number(value, column === "rank" ? 0 : 3);
    }
    if (column === "front") return view.frontOf[row.number] || "—";
    if (column === "instance") return data.text(data.placed(row, view.state.snapshot).type) || "—";
    return row[column];
  }

  function fillIn(dialog, row, column, view) {
    const made = parts.MADE_OF[column] || (() => []);
    const all = parts.explained(row, view);
    const titles = all.map(([title]) => title);
    const trust = all.slice(titles.indexOf("Trust"), titles.includes("Stored jobs") ? -1 : undefined);
    const own = all.filter(([title]) => ["Outcome", parts.titleOf(column)].includes(title));
    const others = all.filter((each) => !own.includes(each) && !trust.includes(each));
    const content = [
      element(
        "div",
        { class: "dialog-head" },
        element("h2", { id: "evidence-title" }, `${label(column, view)}: ${row.system} on ${row.profile}`),
        element(
          "button",
          { type: "button", class: "close", "aria-label": "Close", onclick: () => dialog.close() },
          "Close ✕",
        ),
      ),
      element("p", { class: "headline" }, headline(row, column, view)),
      part("How it was made", paragraphs(own), list(made(row, view)), paragraphs(parts.meaning(column, view))),
      part("Trust, and what to do", paragraphs([...trust, ...parts.remedies(row)]), list(notes(row))),
      distribution(row, view),
      part("The other numbers of this row", paragraphs(others)),
      part("All figures of this row", figures(row, view)),
      part("Job", facts(job(row))),
      part("Environment", environment(row)),
      part("To measure it again", again(row)),
    ];
    dialog.replaceChildren(...content.filter(Boolean));
  }

  function part(title, ...content) {
    const known = content.flat().filter(Boolean);
    return known.length ? element("section", {}, element("h3", {}, title), known) : null;
  }

  function list(lines) {
    return lines.length
      ? element(
          "ul",
          {},
          lines.map((line) => element("li", {}, line)),
        )
      : null;
  }

  function facts(pairs) {
    const known = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
    return element(
      "dl",
      {},
      known.map(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]),
    );
  }

  function distribution(row, view) {
    if (!row.quantiles) {
      const why =
        row.outcome === "ok"
          ? data.read("p50_ms", row, view.settings).reason || "no samples of single queries are stored"
          : "it has no samples";
      return part("Samples", element("p", {}, `No distribution: ${why}.`));
    }
    const [first, last] = [row.quantiles[0], row.quantiles[row.quantiles.length - 1]];
    if (first === last) {
      return part("Samples", element("p", {}, `${parts.samples(row)}; all took ${number(first * 1e3)} ms.`));
    }
    const at = (share) => number(row.quantiles[Math.round(share * (row.quantiles.length - 1))] * 1e3);
    const said = `${parts.samples(row)}; minimum ${at(0)} ms, median ${at(0.5)} ms, maximum ${at(1)} ms`;
    return part(
      "Samples",
      element("p", {}, said),
      element(
        "div",
        { class: "two" },
        ["histogram", "ecdf"].map((kind) =>
          element("div", {
            class: "chart small-chart",
            "data-chart": kind,
            role: "img",
            "aria-label": `${kind} of latency: ${said}`,
          }),
        ),
      ),
    );
  }

  function paragraphs(pairs) {
    return pairs.map(([title, text]) =>
      element("p", { class: "explained" }, element("strong", {}, title), element("span", {}, text)),
    );
  }

  function notes(row) {
    const standIn = row.standIn ? [`† not the published checkpoint but a stand-in: ${row.standIn}`] : [];
    const firstUse = row.firstUse ? [`‡ pinned at first use: ${row.firstUse}`] : [];
    return [...standIn, ...firstUse, ...(row.notes || []).map((note) => data.text(note))];
  }

  function figures(row, view) {
    if (row.outcome !== "ok") return null;
    const means = (row.trialMeans || []).map((value) => `${number(value * 1e3)} ms`).join(", ");
    return facts([
      ...page.content.figures.map(({ name, label, unit }) => {
        const item = data.read(name, row, view.settings);
        return [label, item.value === null && !item.reason ? null : parts.bounded(item, unit)];
      }),
      ["means of trials", means],
    ]);
  }

  function job(row) {
    return [
      ["origin", row.origin],
      ["suite", row.suite],
      ["dataset, scenario", `${row.dataset}, ${row.scenario}`],
      [
        "hardware profile",
        `${row.profile}: ${count(row.cpus, "CPU")}, ${row.nominal ? `${bytes(row.nominal)} (limit ${bytes(row.memory)})` : bytes(row.memory)}${row.gpus ? `, ${count(row.gpus, "GPU")}` : ""}`,
      ],
      ["compared with", page.content.groups[row.place].label],
      ["started", row.started],
      ["stored attempts", String(row.attempts)],
      ["page cache", data.text(row.pageCache)],
      ["harness on CPUs of its own", row.apart === undefined ? null : row.apart ? "yes" : "no"],
    ];
  }

  const MACHINE = {
    cpu_model: "processor",
    architecture: "architecture",
    kernel: "kernel",
    cgroup_version: "cgroup version",
    docker_version: "Docker",
    harness_version: "harness",
    harness_commit: "harness commit",
    gpu_models: "GPUs",
    instance_type: "instance type",
    host_cpus: "CPUs of harness and job",
  };

  function environment(row) {
    if (row.machine === undefined) return element("p", {}, "Published, not measured here: no environment is known.");
    const machine = page.content.machines[row.machine];
    const numeric = ["cgroup_version", "host_cpus"];
    return facts(
      Object.entries(MACHINE).map(([name, said]) => {
        const value = machine[name];
        return [said, value === undefined ? null : numeric.includes(name) ? String(value) : data.text(value)];
      }),
    );
  }

  function again(row) {
    if (row.machine === undefined)
      return element("p", {}, "Nothing of this row was run here, so nothing here repeats it.");
    return [
      element("pre", {}, element("code", {}, data.text(row.again))),
      element(
        "p",
        { class: "quiet" },
        `SUITE is the file of the suite “${row.suite}”; what is stored stays, and is compared with.`,
      ),
    ];
  }

  page.evidence = { build, show };
})((window.harnessPage = window.harnessPage || {}));
