// The columns of the table: the headings, and the order of rows by a column.
const FRONT_ORDER = { front: 0, contested: 1, dominated: 2 };
const VALIDITY_ORDER = { clean: 0, unknown: 1, noisy: 2, invalid: 3 };

// What a column around the figures is sorted by: a number (NaN: none, always last) or a text.
const SORT_VALUES = {
  rank: (row, view) => view.rank[row.number],
  system: (row) => row.system,
  origin: (row) => row.origin || "",
  group: (row) => row.place,
  profile: (row) => row.profile,
  instance: (row, view) => placed(row, view.state).usd ?? NaN,
  score: (row, view) => view.score[row.number],
  front: (row, view) => FRONT_ORDER[view.frontOf[row.number]] ?? NaN,
  outcome: (row) => row.outcome,
  validity: (row) => VALIDITY_ORDER[row.validity],
};

function sortValue(column, row, view) {
  return column.figure ? axisValues(column.name, view.state).value[row.number] : SORT_VALUES[column.name](row, view);
}

function columnNamed(name) {
  return content.columns.find((each) => each.name === name);
}

// The columns that tell rows apart: a group where there are several, an origin where results were merged, a figure that
// some row has or gives a reason for.
function shownColumns(view) {
  const rows = rowsOfGroups(view.groups);
  return content.columns.filter(
    ({ name, number }) =>
      (name !== "group" || view.groups.length > 1) &&
      (name !== "origin" || content.rows.some((row) => row.origin !== null)) &&
      (number === undefined || rows.some((row) => row.figures?.[number])),
  );
}

function header({ name, text }, state) {
  return name === "accuracy" ? `${content.measures[state.measure]}, points` : text;
}

// Rows by the chosen column, rows without a value last; ties by rank.
function sorted(rows, view) {
  const by = columnNamed(view.state.sort);
  const side = view.state.descending ? -1 : 1;
  const keys = new Map(rows.map((row) => [row, sortValue(by, content.rows[row], view)]));
  const apart = by.name === "rank" && view.groups.length > 1;
  return rows.sort((a, b) => {
    const [one, other] = [content.rows[a], content.rows[b]];
    return (apart && one.place - other.place) || compared(keys.get(a), keys.get(b), side) || byRank(one, other, view);
  });
}

function compared(one, other, side) {
  if (typeof one === "string") return one === other ? 0 : side * (one < other ? -1 : 1);
  if (Number.isNaN(one) || Number.isNaN(other)) return Number.isNaN(one) - Number.isNaN(other);
  return side * (one - other);
}

function byRank(one, other, view) {
  const rankOf = (row) => (Number.isNaN(view.rank[row.number]) ? content.rows.length + 1 : view.rank[row.number]);
  return rankOf(one) - rankOf(other) || one.number - other.number;
}
