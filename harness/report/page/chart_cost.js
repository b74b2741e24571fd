// What a million queries cost on each instance type.
const MOST_TYPES = 30;

function drawCost(view, style) {
  const cost = axisValues("cost", view.state).value;
  const rows = rowsOf(view).filter((row) => cost[row.number] > 0);
  const typeOf = (row) => placed(row, view.state).type;
  if (!rows.length) return { why: "No row that passes the filter has a cost at these prices." };
  if (rows.length === 1) {
    const words = `US$ ${number(cost[rows[0].number])} per million queries on ${typeOf(rows[0])}`;
    return { why: `${nameOf(rows[0])} alone has a cost: ${words}.` };
  }
  const heading = "US$ per million queries";
  const prices = new Map(rows.map((row) => [typeOf(row), placed(row, view.state).usd]));
  const types = Array.from(prices.keys()).sort().sort((a, b) => prices.get(a) - prices.get(b)).slice(0, MOST_TYPES);
  const at = (row) => [cost[row.number], types.indexOf(typeOf(row))];
  const shown = rows.filter((row) => types.includes(typeOf(row)));
  const x = axisOf(shown.map((row) => cost[row.number]), heading, style);
  const least = Math.min(...rows.map((row) => cost[row.number]));
  const cheapest = rows.filter((row) => cost[row.number] === least);
  const equal = cheapest.length > 1 ? ` and ${cheapest.length - 1} equal` : "";
  const mark = (row) => ({
    value: at(row),
    tip: `${labelOf(row)}\n${number(cost[row.number])} ${heading}`,
    symbol: style.look(row.system).symbol,
    itemStyle: { color: style.look(row.system).colour, opacity: 0.85 },
  });
  const data = thinned(shown, at, (row) => style.look(row.system).colour, x.type === "log").map(mark);
  const left = prices.size > types.length ? ` The ${types.length} cheapest of ${prices.size} types.` : "";
  const answer = `the least is ${cheapest[0].system} on ${typeOf(cheapest[0])}${equal}: ${number(least)}`;
  return {
    summary: `US$ per million queries on ${count(types.length, "instance type")}; ${answer}.${left}`,
    columns: [["instance type"], ["US$/h", "number"], ["system"], ["hardware profile"], [heading, "number"]],
    rows: () =>
      shown
        .sort((a, b) => at(a)[1] - at(b)[1] || at(a)[0] - at(b)[0])
        .map((row) => [typeOf(row), prices.get(typeOf(row)), row.system, row.profile, number(cost[row.number])]),
    legend: legendOf(unique(shown.map((row) => row.system)).sort(), style, { dash: null }),
    option: plot({ left: 150 }, x, typeAxis(types, prices, style), [{ type: "scatter", symbolSize: 10, data }]),
  };
}

function typeAxis(types, prices, style) {
  return {
    type: "category",
    inverse: true,
    data: types.map((type) => `${type} (${prices.get(type)})`),
    axisLabel: { color: style.ink, interval: 0, fontSize: 11, width: 140, overflow: "truncate" },
    axisTick: { show: false },
    splitLine: { show: true, lineStyle: { color: style.line } },
  };
}

pictures.push({ id: "cost", draw: drawCost });
