// The table: one page of rows at a time, its order, and the way through it by keyboard.
const PAGE = 40; // rows; laying out more would be felt while a slider moves
const USUAL_COLUMNS = 14; // fit into 1,280 pixels
const PRINTED = 1000; // rows on paper
// Where each button of the pager leads from a page, of so many.
const PAGER = {
  first: () => 0,
  previous: (at) => Math.max(at - 1, 0),
  next: (at, pages) => Math.min(at + 1, pages - 1),
  last: (at, pages) => pages - 1,
};
const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

function buildTable() {
  find("body").addEventListener("click", openEvidence);
  find("body").addEventListener("keydown", walk);
  find("body").addEventListener("focusin", (event) => hold(event.target));
  for (const [name, to] of Object.entries(PAGER)) {
    find(`page-${name}`).addEventListener("click", () => change({ page: to(pageOf(view), pagesOf(view)) }));
  }
}

function pagesOf(view) {
  return Math.max(1, Math.ceil(view.rows.length / PAGE));
}

function pageOf(view) {
  return Math.min(view.state.page, pagesOf(view) - 1);
}

function showTable(view) {
  const columns = shownColumns(view);
  const from = printing ? 0 : pageOf(view) * PAGE;
  const rows = view.rows.slice(from, from + (printing ? PRINTED : PAGE));
  showHead(columns, view);
  find("table").classList.toggle("tight", columns.length > USUAL_COLUMNS);
  reasons = [];
  find("body").replaceChildren(...rows.map((row) => lineOf(content.rows[row], columns, view)));
  hold(find("body").querySelector("button"));
  find("count").textContent = countOf(view, from, rows.length);
  showPager(pageOf(view), pagesOf(view));
  const footnotes = reasons.length ? [element("h3", null, "Why there is no number"), list("ol", reasons)] : [];
  find("footnotes").replaceChildren(...footnotes);
}

// A button that has the focus keeps it: where it leads nowhere, it says so and does nothing.
function showPager(at, pages) {
  for (const [name, to] of Object.entries(PAGER)) {
    const button = find(`page-${name}`);
    const off = to(at, pages) === at;
    button.setAttribute("aria-disabled", off);
    button.disabled = off && document.activeElement !== button;
  }
  find("page-of").textContent = `page ${at + 1} of ${number(pages, 0)}`;
  find("pager").hidden = pages < 2;
}

// The heads stay while their columns do, so that a pressed one keeps the focus.
function showHead(columns, view) {
  const head = find("head");
  const names = [printing, ...columns.map(({ name }) => name)].join(" ");
  if (head.dataset.columns !== names) {
    head.dataset.columns = names;
    head.replaceChildren(...columns.map(headCell));
  }
  columns.forEach((column, at) => {
    const order = view.state.sort === column.name && (view.state.descending ? "descending" : "ascending");
    const arrow = order ? (view.state.descending ? "▼" : "▲") : "";
    const mark = element("span", { "aria-hidden": "true", class: "arrow" }, arrow);
    head.children[at].setAttribute("aria-sort", order || "none");
    head.children[at].firstChild.replaceChildren(header(column, view.state), mark);
  });
}

// A header that is repeated on each sheet of paper shows no buttons.
function headCell({ name, numeric, higher }) {
  const inside = printing ? element("span", "sort") : element("button", { type: "button", class: "sort" });
  // First the better end of a column, then the other one.
  inside.addEventListener("click", () => {
    change({ sort: name, descending: state.sort === name ? !state.descending : higher, page: 0 });
  });
  return element("th", { scope: "col", "data-column": name, class: numeric && "number" }, inside);
}

function countOf(view, from, many) {
  const all = view.groups.reduce((sum, group) => sum + group.rows.length, 0);
  const passing = view.rows.length;
  if (!passing) return `No row of ${number(all, 0)} passes this filter.`;
  const hidden = passing < all ? ` of ${number(all, 0)} (ranks are among all)` : "";
  const part = many < passing ? `; here ${number(from + 1, 0)} to ${number(from + many, 0)}` : "";
  return `${count(passing, "row")}${hidden}${part}`;
}

function openEvidence(event) {
  const target = event.target.closest("button[data-column]");
  if (!target) return;
  change({ evidence: { row: Number(target.closest("tr").dataset.row), column: target.dataset.column } });
}

// One number of the table is in the tab order; arrow keys go on from it.
function hold(target) {
  if (!target?.matches("button[data-column]")) return;
  for (const held of find("body").querySelectorAll('button[tabindex="0"]')) held.tabIndex = -1;
  target.tabIndex = 0;
}

function walk(event) {
  const here = event.target.closest("button[data-column]");
  if (!here || !(STEPS[event.key] || ["Home", "End"].includes(event.key))) return;
  event.preventDefault();
  const line = here.closest("tr");
  const buttons = Array.from(line.querySelectorAll("button"));
  const [down, right] = STEPS[event.key] || [0, 0];
  let to = buttons[buttons.indexOf(here) + right];
  if (event.key === "Home") to = buttons[0];
  if (event.key === "End") to = buttons[buttons.length - 1];
  if (down) {
    const next = down > 0 ? line.nextElementSibling : line.previousElementSibling;
    to = next && (next.querySelector(`button[data-column="${here.dataset.column}"]`) || next.querySelector("button"));
  }
  if (to) to.focus();
}

// The first rows of the new order, for readers who do not see the table.
function spoken(view) {
  if (!view.rows.length) return "No row passes this filter.";
  const first = view.rows.slice(0, 3).map((row, at) => {
    const rank = view.rank[row];
    return `${Number.isNaN(rank) ? at + 1 : rank} ${nameOf(content.rows[row])}`;
  });
  return `${count(view.rows.length, "row")}: ${first.join("; ")}`;
}

