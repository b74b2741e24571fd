// The table: one page of rows at a time, its filters, its order, the way about in it by keyboard.
(function (page) {
  "use strict";

  const { element, find, select, fill } = page.elements;
  const { number, count } = page.numbers;
  const PAGE = 40; // laying out more would be felt while a slider moves
  const USUAL = 14; // columns that fit into 1,280 pixels
  const PRINTED = 1000; // on paper, all that pass the filter up to so many
  let printing = false;

  function build() {
    const change = page.main.change;
    find("filters").append(
      element(
        "label",
        { class: "field grow", for: "query" },
        element("span", {}, "Filter: system, profile, instance type, outcome"),
        element("input", {
          type: "search",
          id: "query",
          autocomplete: "off",
          oninput: (event) => change({ query: event.target.value.slice(0, 200), page: 0 }, { dragging: true }),
          onchange: () => page.main.settle(),
        }),
      ),
      select("outcome", "Outcome", [], (outcome) => change({ outcome, page: 0 })),
      select("validity", "Validity", [], (validity) => change({ validity, page: 0 })),
      element(
        "label",
        { class: "check", for: "intervals" },
        element("input", {
          type: "checkbox",
          id: "intervals",
          onchange: (event) => change({ intervals: event.target.checked }),
        }),
        "95 % intervals",
      ),
    );
    find("table-box").append(
      element(
        "table",
        { id: "table", class: "board" },
        element("caption", { class: "unseen", id: "caption" }),
        element("thead", {}, element("tr", { id: "head" })),
        element("tbody", { id: "body" }),
      ),
    );
    find("body").addEventListener("click", opened);
    find("body").addEventListener("keydown", walked);
    find("body").addEventListener("focusin", (event) => hold(event.target));
    find("pager").append(
      pager("first", "« first", () => 0),
      pager("previous", "‹ previous", (at) => at - 1),
      element("span", { id: "page-of" }),
      pager("next", "next ›", (at) => at + 1),
      pager("last", "last »", (at, pages) => pages - 1),
    );
  }

  function pager(id, text, to) {
    const go = () => {
      const view = page.main.view();
      page.main.change({ page: to(view.state.page, pages(view)) });
    };
    return element("button", { type: "button", id: `page-${id}`, onclick: go }, text);
  }

  function pages(view) {
    return Math.max(1, Math.ceil(view.rows.length / PAGE));
  }

  function show(view) {
    showFilters(view);
    const columns = page.columns.shown(view);
    const last = pages(view);
    const at = Math.min(view.state.page, last - 1);
    const from = printing ? 0 : at * PAGE;
    const rows = view.rows.slice(from, printing ? PRINTED : from + PAGE);
    showHead(columns, view);
    find("table").classList.toggle("tight", columns.length > USUAL);
    find("caption").textContent =
      "Leaderboard. Every number is a button that opens its evidence; arrow keys move between numbers.";
    const { made, reasons } = page.cells.lines(rows, columns, view);
    find("body").replaceChildren(...made);
    hold(find("body").querySelector("button"));
    showCount(view, from, rows.length);
    for (const [id, there] of Object.entries({
      first: at > 0,
      previous: at > 0,
      next: at < last - 1,
      last: at < last - 1,
    })) {
      disable(find(`page-${id}`), !there);
    }
    find("page-of").textContent = `page ${at + 1} of ${number(last, 0)}`;
    find("pager").hidden = last < 2;
    showFootnotes(reasons);
  }

  // A button that has the focus keeps it: where it can do nothing, it says so and does nothing.
  function disable(button, off) {
    button.setAttribute("aria-disabled", String(off));
    button.disabled = off && document.activeElement !== button;
  }

  function showFilters(view) {
    const { state, groups } = view;
    const rows = groups.flatMap((group) => Array.from(group.rows, (row) => page.content.rows[row]));
    const options = (name) => {
      const known = Array.from(new Set([...rows.map((row) => row[name]), state[name]].filter(Boolean))).sort();
      return [["", "all"], ...known.map((value) => [value, value])];
    };
    for (const name of ["outcome", "validity"]) {
      fill(find(name), options(name));
      find(name).value = state[name];
    }
    if (document.activeElement !== find("query")) find("query").value = state.query;
    find("intervals").checked = state.intervals;
  }

  function showHead(columns, view) {
    const head = find("head");
    const names = [printing, ...columns.map((column) => column.name)].join(" ");
    if (head.dataset.columns !== names) {
      head.dataset.columns = names;
      head.replaceChildren(
        ...columns.map((column) =>
          element(
            "th",
            { scope: "col", "data-column": column.name, class: column.numeric ? "number" : null },
            // A header that is repeated on each sheet of paper shows no buttons.
            printing
              ? element("span", { class: "sort" })
              : element("button", { type: "button", class: "sort", onclick: () => sortBy(column.name) }),
          ),
        ),
      );
    }
    columns.forEach((column, at) => {
      const cell = head.children[at];
      const here = view.state.sort === column.name;
      cell.setAttribute("aria-sort", here ? (view.state.descending ? "descending" : "ascending") : "none");
      const mark = element(
        "span",
        { "aria-hidden": "true", class: "arrow" },
        here ? (view.state.descending ? "▼" : "▲") : "",
      );
      cell.firstChild.replaceChildren(page.columns.header(column, view), mark);
    });
  }

  // First the better end of a column, then the other one.
  function sortBy(name) {
    const { state } = page.main.view();
    const better = page.columns.named(name).higher;
    const descending = state.sort === name ? !state.descending : better;
    page.main.change({ sort: name, descending, page: 0 });
  }

  function showCount(view, from, many) {
    const all = view.groups.reduce((sum, group) => sum + group.rows.length, 0);
    const found = view.rows.length;
    const part = many && many < found ? `; here ${number(from + 1, 0)} to ${number(from + many, 0)}` : "";
    const hidden = found < all ? ` of ${number(all, 0)} (ranks are among all)` : "";
    const cut = printing && found > PRINTED ? `; printed: the first ${number(PRINTED, 0)}` : "";
    find("count").textContent = found
      ? `${count(found, "row")}${hidden}${part}${cut}`
      : `No row of ${number(all, 0)} passes this filter.`;
  }

  function showFootnotes(texts) {
    find("footnotes").replaceChildren(
      ...(texts.length
        ? [
            element("h3", {}, "Why there is no number"),
            element(
              "ol",
              {},
              texts.map((text) => element("li", {}, text)),
            ),
          ]
        : []),
    );
  }

  function opened(event) {
    const target = event.target.closest("button[data-column]");
    if (!target) return;
    const row = Number(target.closest("tr").dataset.row);
    page.main.change({ evidence: { row, column: target.dataset.column } });
  }

  // One number of the table is in the tab order; arrow keys go on from it.
  function hold(target) {
    if (!target || !target.matches("button[data-column]")) return;
    for (const held of find("body").querySelectorAll('button[tabindex="0"]')) held.tabIndex = -1;
    target.tabIndex = 0;
  }

  const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

  function walked(event) {
    const here = event.target.closest("button[data-column]");
    if (!here) return;
    const line_ = here.closest("tr");
    const buttons = Array.from(line_.querySelectorAll("button"));
    const at = buttons.indexOf(here);
    let to = null;
    if (event.key === "Home") to = buttons[0];
    else if (event.key === "End") to = buttons[buttons.length - 1];
    else if (STEPS[event.key]) {
      const [down, right] = STEPS[event.key];
      if (right) to = buttons[at + right];
      else {
        const next = down > 0 ? line_.nextElementSibling : line_.previousElementSibling;
        to =
          next && (next.querySelector(`button[data-column="${here.dataset.column}"]`) || next.querySelector("button"));
      }
    } else return;
    event.preventDefault();
    if (to) to.focus();
  }

  // The first few of the new order, for who does not see the table.
  function spoken(view) {
    const first = view.rows.slice(0, 3).map((row, at) => {
      const { system, profile } = page.content.rows[row];
      const rank = view.rank[row];
      return `${Number.isNaN(rank) ? at + 1 : rank} ${system} on ${profile}`;
    });
    return first.length ? `${count(view.rows.length, "row")}: ${first.join("; ")}` : "No row passes this filter.";
  }

  function forPrint(on) {
    printing = on;
  }

  function button_(row, column) {
    return find("body").querySelector(`tr[data-row="${row}"] button[data-column="${column}"]`);
  }

  page.table = {
    build,
    show,
    spoken,
    forPrint,
    button: button_,
  };
})((window.harnessPage = window.harnessPage || {}));
