// The cells of a row: each number a button that opens its evidence, a missing one a dash with the mark of its reason.
(function (page) {
  "use strict";

  const { element } = page.elements;
  const { number, interval, MISSING } = page.numbers;
  const MARKS = { front: "●", contested: "◆", dominated: "○" };
  let notes = new Map(); // reasons of missing numbers -> their marks

  function line(row, columns, view) {
    const made = element("tr", {
      "data-row": row.number,
      class: `${row.outcome === "ok" ? "" : "failed "}${row.validity}`,
    });
    if (row.outcome === "ok") {
      made.append(...columns.map((column) => cell(column, row, view)));
      return made;
    }
    // A row without numbers says why over the whole width of what it lacks.
    const lacking = columns
      .filter((column) => column.numeric || column.name === "front")
      .filter((column) => column.name !== "rank");
    for (const column of columns) {
      if (column === lacking[0]) {
        const why = page.data.ended(row);
        made.append(
          element("td", { colspan: lacking.length, class: "why" }, button("score", element("span", {}, why), why)),
        );
      } else if (!lacking.includes(column)) made.append(cell(column, row, view));
    }
    return made;
  }

  function button(column, content, label) {
    return element(
      "button",
      { type: "button", class: "figure", tabindex: -1, "data-column": column, "aria-label": label },
      content,
    );
  }

  function marked(row) {
    return row.system + (row.standIn ? " †" : "") + (row.firstUse ? " ‡" : "");
  }

  function cell(column, row, view) {
    const { name } = column;
    if (name === "system") {
      const unranked = row.outcome === "ok" && view.why[row.number];
      return element(
        "th",
        { scope: "row", "data-column": name },
        element("span", { class: row.system.length <= 24 ? "name" : null }, marked(row)),
        unranked ? element("span", { class: "small", title: unranked }, `not ranked: ${unranked}`) : null,
      );
    }
    const attributes = { "data-column": name, "data-label": page.columns.header(column, view) };
    return element("td", { ...attributes, class: column.numeric ? "number" : null }, inside(column, row, view));
  }

  function inside(column, row, view) {
    const { name } = column;
    if (name === "group") return `${row.dataset}: ${page.content.groups[row.place].label}`;
    if (name === "profile") return row.profile;
    if (name === "origin") return row.origin || MISSING;
    if (name === "outcome") return button(name, row.outcome, `outcome ${row.outcome}`);
    if (name === "validity") return validity(row);
    if (name === "instance") return instance(row, view);
    if (name === "front") {
      const found = view.frontOf[row.number];
      if (found === null) return missing(name, row, view, whyNoFront(row, view));
      return button(name, [element("span", { "aria-hidden": "true" }, `${MARKS[found]} `), found], `front: ${found}`);
    }
    const value = page.columns.value(column, row, view);
    if (Number.isNaN(value)) return missing(name, row, view, whyMissing(column, row, view));
    const shown =
      name === "rank"
        ? String(value)
        : name === "score"
          ? number(value, 2)
          : number(value, column.name === "accuracy" ? 1 : undefined);
    const cold =
      name === "latency" && row.onePass !== undefined
        ? element("span", { class: "small" }, `after ${row.onePass} warm-up queries`)
        : null;
    return button(name, [shown, column.figure && view.state.intervals ? between(column, row, view) : null, cold]);
  }

  function between(column, row, view) {
    const item = page.data.column(column.name, view.settings);
    const text = interval(item.value[row.number], item.low[row.number], item.high[row.number]);
    // A dash where too few processes or queries bear an interval.
    const unknown = column.interval && Number.isFinite(item.value[row.number]) ? MISSING : "";
    return text || unknown ? element("span", { class: "interval" }, text || unknown) : null;
  }

  function whyMissing(column, row, view) {
    if (column.figure) return page.data.whyNot(column.name, row, view.settings);
    return view.why[row.number];
  }

  function whyNoFront(row, view) {
    const missed = page.view.members(page.content.groups[row.place], ["accuracy", view.state.across], view.settings);
    return missed.why.get(row.number) || null;
  }

  // "—" and the mark of its reason, which stands below the table.
  function missing(name, row, view, reason) {
    const text = reason || "not measured";
    if (!notes.has(text)) notes.set(text, notes.size + 1);
    const mark = element("sup", {}, String(notes.get(text)));
    return button(name, [MISSING, mark], `no number: ${text}`);
  }

  function instance(row, view) {
    const at = page.data.placed(row, view.state.snapshot);
    if (at.usd === undefined) return missing("instance", row, view, page.data.text(at.note));
    const other = page.data.text(at.other);
    const price = `${other === null ? "" : `${other}, `}${at.usd} US$/h`;
    const type = at.own ? page.data.text(at.type) : `${page.data.text(at.type)}*`;
    const label = at.own ? undefined : `${type} ${price}: priced there, measured elsewhere`;
    return button("instance", [type, element("span", { class: "interval" }, price)], label);
  }

  function validity(row) {
    if (row.outcome !== "ok" && row.validity === "clean") return MISSING;
    const causes = Array.from(
      new Set(
        (row.findings || []).filter(([, worth]) => worth !== "clean").map(([cause]) => cause.replaceAll("_", " ")),
      ),
    );
    const why = causes.length ? element("span", { class: "small" }, causes.join(", ")) : null;
    return button(
      "validity",
      [row.validity, why],
      `validity ${row.validity}${causes.length ? `: ${causes.join(", ")}` : ""}`,
    );
  }

  // The rows' lines, and the reasons that their marks stand for, in order.
  function lines(rows, columns, view) {
    notes = new Map();
    const made = rows.map((row) => line(page.content.rows[row], columns, view));
    return { made, reasons: Array.from(notes.keys()) };
  }

  page.cells = { lines };
})((window.harnessPage = window.harnessPage || {}));
