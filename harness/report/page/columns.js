// The columns of the table: what each is sorted by, and whose figure a cell shows.
(function (page) {
  "use strict";

  const NO_NUMBER = NaN;

  const FRONT = { front: 0, contested: 1, dominated: 2 };
  const VALIDITY = { clean: 0, unknown: 1, noisy: 2, invalid: 3 };

  // What a column around the figures is sorted by: a number (NaN: none, always last) or a text.
  const VALUES = {
    rank: (row, view) => view.rank[row.number],
    system: (row) => row.system,
    origin: (row) => row.origin || "",
    group: (row) => row.place,
    profile: (row) => row.profile,
    instance: (row, view) => {
      const { usd } = page.data.placed(row, view.state.snapshot);
      return usd === undefined ? NO_NUMBER : usd;
    },
    score: (row, view) => view.score[row.number],
    front: (row, view) => {
      const found = view.frontOf[row.number];
      return found === null ? NO_NUMBER : FRONT[found];
    },
    outcome: (row) => row.outcome,
    validity: (row) => VALIDITY[row.validity],
  };

  function value(column, row, view) {
    if (!column.figure) return VALUES[column.name](row, view);
    return page.data.column(column.name, view.settings).value[row.number];
  }

  function named(name) {
    return page.content.columns.find((each) => each.name === name);
  }

  // Those that say something here: a group where there are several, an origin where results were merged, a figure where
  // some row has it or says why not.
  function shown(view) {
    const rows = view.groups.flatMap((group) => Array.from(group.rows, (row) => page.content.rows[row]));
    return page.content.columns.filter(
      (column) =>
        (column.name !== "group" || view.groups.length > 1) &&
        (column.name !== "origin" || page.content.rows.some((row) => row.origin !== null)) &&
        (column.number === undefined || rows.some((row) => row.figures && row.figures[column.number])),
    );
  }

  function header(column, view) {
    if (column.name !== "accuracy") return column.text;
    return `${page.content.measures[view.state.measure]}, points`;
  }

  // Rows by the chosen column; what has no value stands last either way, ties by rank and then as they came.
  function sorted(rows, view) {
    const column = named(view.state.sort);
    const side = view.state.descending ? -1 : 1;
    const keys = new Map(rows.map((row) => [row, value(column, page.content.rows[row], view)]));
    const apart = column.name === "rank" && view.groups.length > 1;
    const rankOf = (row) => (Number.isNaN(view.rank[row]) ? Infinity : view.rank[row]);
    const placeOf = (row) => page.content.rows[row].place;
    return rows.slice().sort((a, b) => {
      if (apart && placeOf(a) !== placeOf(b)) return placeOf(a) - placeOf(b);
      const found = compared(keys.get(a), keys.get(b), side);
      if (found) return found;
      const [one, other] = [rankOf(a), rankOf(b)];
      return one === other ? a - b : one - other;
    });
  }

  function compared(one, other, side) {
    if (typeof one === "string") return one === other ? 0 : side * (one < other ? -1 : 1);
    if (Number.isNaN(one) || Number.isNaN(other)) return Number(Number.isNaN(one)) - Number(Number.isNaN(other));
    return side * (one - other);
  }

  page.columns = { named, shown, header, value, sorted };
})((window.harnessPage = window.harnessPage || {}));
