// The monthly bill: a slider for the traffic, what the cheapest costs there, the bills, and their picture.
const NOTCHES = 100; // of the slider, for ten times the queries
const MOST_BILLS = 50;
const MOST_BILL_LINES = 12;
const NAME_HEIGHT = 13; // pixels
const LESS = "<0.01";

// Why a row has no bill, or null.  As harness/analysis/bills.py: reason_without_bill.
function whyNoBill(row, state) {
  const unranked = whyUnranked(row, [], state);
  const at = placed(row, state);
  if (unranked !== null) return unranked;
  if (at.usd === undefined) return at.note || "it has no price";
  if (!["single_stream", "server"].includes(row.scenario)) {
    return `scenario ${row.scenario} has no latency of single queries`;
  }
  const [qps, , , reason] = row.bill.qps || [];
  return qps ? null : `no queries per second are known: ${textOf(reason) || UNMEASURED}`;
}

// Builds and storage are known at the first prices alone.
function serviceOf(row, state) {
  const known = state.snapshot === content.snapshot ? row.bill : {};
  const { build = null, storage = null, tokens = null } = known;
  return { row, qps: row.bill.qps[0], usd: placed(row, state).usd, build, storage, tokens };
}

// Rows of single queries at their cheapest offers that are paid by the query.
function paidServices(rows, state) {
  const able = rows.filter((row) => row.scenario === "single_stream" && row.bill.paid);
  return able.map((row) => {
    const [offer, paid] = row.bill.paid;
    return { ...serviceOf(row, state), offer, paid };
  });
}

function billedGroups({ groups: [{ bills }] }) {
  return content.groups.filter((group) => group.bills === bills);
}

// The rows that are billed together, whatever their scenario, and where the cheapest of them changes.
function billsOf({ groups, state }) {
  const { snapshot, query, outcome, validity } = state;
  return remembered(["bills", groups[0].bills, snapshot, query, outcome, validity], () => {
    const rows = filtered(billedGroups({ groups }), state).map((at) => content.rows[at]);
    const able = rows.filter((row) => whyNoBill(row, state) === null);
    const cell = ({ system, profile }) => JSON.stringify([system, profile]);
    const loaded = new Set(able.filter(({ scenario }) => scenario === "server").map(cell));
    const shown = able.filter((row) => row.scenario === "server" || !loaded.has(cell(row)));
    const services = shown.map((row) => serviceOf(row, state));
    const systems = new Map();
    for (const service of sortedBills(services, content.bills.traffic.queries_per_month)) {
      systems.set(service.row.system, [...(systems.get(service.row.system) || []), service]);
    }
    const lines = Array.from(systems).slice(0, MOST_BILL_LINES);
    const drawn = lines.map(([system, of]) => ({ system, points: curveOf(of) }));
    const paid = paidServices(able, state);
    return { rows, services, paid, drawn, hidden: systems.size - lines.length, changes: changesOf(services) };
  });
}

function sortedBills(services, queries) {
  const latency = (service) => read("latency", service.row, view.state).value ?? 0;
  const total = new Map(services.map((service) => [service, billOf(service, queries).total]));
  return services.slice().sort((a, b) => total.get(a) - total.get(b) || latency(a) - latency(b) || a.row.number - b.row.number);
}

function money(usd) {
  return usd >= 0.01 || usd === 0 ? number(usd) : LESS;
}

function busyText(busy) {
  return `${busy >= 1e-4 || busy === 0 ? number(busy * 100) : LESS} %`;
}

function joinedByAnd(names) {
  return names.length > 1 ? `${names.slice(0, -1).join(", ")} and ${names[names.length - 1]}` : String(names);
}

function severalSystems(services) {
  return unique(services.map(({ row }) => row.system)).length > 1;
}

function systemsOf(services) {
  const shown = unique(services.slice(0, 3).map(({ row }) => row.system));
  return joinedByAnd([...shown, ...(services.length > 3 ? [`${services.length - 3} others`] : [])]);
}

// As harness/report/bill.py: what the cheapest costs, which others cost the same, and where that changes.
function billSentence({ services, changes, rows }, { state }) {
  const queries = state.traffic;
  if (!services.length) return `No row has a bill${rows.length ? ` (${whyNoBill(rows[0], state)})` : ""}.`;
  const ordered = sortedBills(services, queries);
  const same = cheapestOf(ordered, queries).map((at) => ordered[at]);
  const { machines, total, busy } = billOf(same[0], queries);
  const change = changes.find((each) => each.queries > queries * (1 + 1e-9));
  const then = change && sortedBills(change.cheapest.map((at) => services[at]), queries);
  const until = change ? ` up to ${large(change.queries)} queries a month` : "";
  const later = change ? `; from there on ${systemsOf(then)} ${severalSystems(then) ? "are" : "is"} the cheapest` : "";
  const every = services.length === 2 ? "both systems" : `all ${services.length} rows`;
  const alike =
    !severalSystems(same)
      ? `${systemsOf(same)} is the cheapest`
      : same.length === services.length
        ? `${every} cost the same (within 1 %)`
        : `${systemsOf(same)} cost the same (within 1 %), and are the cheapest`;
  const rented = `${machines} x ${placed(same[0].row, state).type}, US$ ${total >= 10 ? number(total, 0) : money(total)} a month, ${busyText(busy)} busy`;
  return `${rented}: ${alike}${until}${later}.`;
}

// As harness/report/bill.py: whether paying by the query costs less than machines, and up to which traffic.
function paidSentence({ services, paid }, { state }) {
  if (!paid.length || !services.length) return "";
  const least = (queries) => paid.reduce((best, one) => (paidUsd(one, queries) < paidUsd(best, queries) ? one : best));
  const queries = state.traffic;
  const now = least(queries);
  const usd = paidUsd(now, queries);
  const saves = usd < leastBill(services, queries);
  const until = breakEven(paid, services, saves ? queries : 0);
  const best = saves ? now : least(until ?? content.bills.most);
  const kind = best.offer.startsWith("API") ? "an API" : "serverless";
  const name = `${best.row.system} on ${best.offer}`;
  if (saves) {
    const limit = until === null ? "at any traffic" : `up to ${large(until)} queries a month`;
    const start = best.row.bill.start_s;
    const wait = start === undefined ? "" : `; the first query after an idle time takes ${number(start)} s`;
    const month = `US$ ${usd >= 10 ? number(usd, 0) : money(usd)} a month`;
    return `${kind[0].toUpperCase()}${kind.slice(1)} costs less: ${name}, ${month}, less than machines ${limit}${wait}.`;
  }
  if (until === null || until < 2) return "Serverless never costs less than these machines.";
  return `Below ${large(until)} queries a month ${kind} costs less: ${name}.`;
}

function billTable({ services }, { state }) {
  const queries = state.traffic;
  const ordered = sortedBills(services, queries);
  const best = cheapestOf(ordered, queries);
  const columns = [["system"], ["machines"], ["busy", "number"], ["US$/month", "number"], [""]];
  const lines = ordered.slice(0, MOST_BILLS).map((service, at) => {
    const { row } = service;
    const { machines, busy, total } = billOf(service, queries);
    const { type, own } = placed(row, state);
    const mark = !best.includes(at) ? null : best.length > 1 ? "within 1 %" : "cheapest";
    const states = [mark, row.validity === "noisy" && row.validity].filter(Boolean).join(", ");
    const named = [row.system, element("span", "small", row.profile)];
    return [named, `${machines} x ${type}${own ? "" : "*"}`, busyText(busy), money(total), states];
  });
  const cut = services.length > lines.length ? ` The ${lines.length} least of ${services.length} bills.` : "";
  const first = state.snapshot === content.snapshot ? "" : " Without builds and storage: known at the first prices alone.";
  const starred = ordered.some(({ row }) => !placed(row, state).own) ? " * the latency was measured on another machine." : "";
  return grid(`Bills at ${large(queries)} queries a month.${cut}${first}${starred}`, columns, lines);
}

function drawBill(view, shared) {
  const style = { ...shared, look: styleOf({ groups: billedGroups(view) }).look };
  const known = billsOf(view);
  const { services, drawn, hidden, changes } = known;
  if (!services.length) return { why: billSentence(known, view) };
  const queries = view.state.traffic;
  const x = { ...axisOf([content.bills.least, content.bills.most], "queries a month", style), min: content.bills.least };
  const usd = drawn.flatMap(({ points }) => [points[0][1], points[points.length - 1][1]]);
  const low = 10 ** Math.floor(Math.log10(Math.min(...usd) / 1.2));
  const high = 10 ** Math.ceil(Math.log10(Math.max(...usd) * 1.001));
  const y = axisOf([low, high * 2], "US$ a month", style, { nameGap: 52, min: low, max: high });
  const named = style.width > 520;
  const serverless = known.paid.length ? [{ system: "serverless", points: paidPoints(known.paid) }] : [];
  const texts = changes.slice(0, 5).map((each) => `${large(each.queries)} (${billNames(each, services)})`);
  const more = changes.length > texts.length ? ` and ${changes.length - texts.length} more` : "";
  const where = changes.length ? `the cheapest changes at ${texts.join(", ")}${more}` : "the cheapest is always the same";
  const grey = serverless.length ? ` Grey: the cheapest system that is paid by the query.` : "";
  const left = hidden ? ` The ${drawn.length} cheapest of ${drawn.length + hidden} systems.` : "";
  return {
    summary: `US$ a month of rented machines by queries a month; ${where}.${grey}${left}`,
    columns: [["from queries a month", "number"], ["cheapest"], ["US$/month", "number"]],
    rows: () =>
      [{ queries: content.bills.least, cheapest: cheapestOf(services, content.bills.least) }, ...changes].map((each) => [
        large(each.queries),
        billNames(each, services),
        money(leastBill(services, each.queries)),
      ]),
    legend: legendOf(drawn.map(({ system }) => system), style, { symbol: null }),
    option: plot({ left: 70, right: named ? 130 : 24 }, { ...x, max: content.bills.most, axisLabel: lettered(x) }, y, [
      ...drawn.map((line) => billLine(line, style)),
      ...serverless.map(({ points }) => paidLine(points, style)),
      ...(named ? [lineNames([...drawn, ...serverless], Math.log(high / low) / (style.height - 68), high, style)] : []),
      changeMarks(changes, services, style),
      lineThrough([{ x: queries, y: low }, { x: queries, y: high }], { color: style.quiet, type: [4, 3], width: 1.2 }),
    ]),
  };
}

function billNames({ queries, cheapest }, services) {
  const ordered = sortedBills(cheapest.map((at) => services[at]), queries);
  return joinedByAnd(unique(ordered.map(({ row }) => row.system)));
}

function lettered({ axisLabel }) {
  return { ...axisLabel, formatter: (value) => large(value, true) };
}

function billLine({ system, points }, style) {
  const { colour, dash } = style.look(system);
  const lineStyle = { color: colour, type: dash, width: 1.8 };
  return { type: "line", name: system, symbol: "none", lineStyle, itemStyle: { color: colour }, data: points };
}

// Logarithmic axes bend its straight line.
function paidPoints(paid) {
  const { least, most } = content.bills;
  const places = Array.from({ length: NOTCHES + 1 }, (_, at) => least * (most / least) ** (at / NOTCHES));
  return places.map((queries) => [queries, leastPaid(paid, queries)]);
}

function paidLine(points, style) {
  const lineStyle = { color: style.quiet, type: [2, 2], width: 1.4 };
  return { type: "line", name: "serverless", symbol: "none", lineStyle, data: points, silent: true };
}

// To the right of the ends of the lines, moved where they would overlap or leave the picture.
// pixel: the logarithm that one spans; high: the end of the axis.
function lineNames(drawn, pixel, high, style) {
  const ends = drawn.map(({ system, points }) => ({ system, end: points[points.length - 1] }));
  ends.sort((a, b) => a.end[1] - b.end[1]);
  const own = ends.map(({ end }) => Math.log(end[1]) / pixel);
  const free = own.slice();
  for (let at = 1; at < free.length; at += 1) free[at] = Math.max(free[at], free[at - 1] + NAME_HEIGHT);
  let top = Math.log(high) / pixel;
  for (let at = free.length - 1; at >= 0; at -= 1) {
    free[at] = Math.min(free[at], top);
    top = free[at] - NAME_HEIGHT;
  }
  const data = ends.map(({ system, end }, at) => ({ value: end, name: system, label: { offset: [0, own[at] - free[at]] } }));
  const text = { color: style.ink, fontSize: 11, width: 120, overflow: "truncate" };
  const label = { show: true, position: "right", formatter: "{b}", ...text };
  return { type: "scatter", silent: true, symbolSize: 1, clip: false, label, data };
}

function changeMarks(changes, services, style) {
  const data = changes.map((each) => ({
    value: [each.queries, leastBill(services, each.queries)],
    tip: `from ${large(each.queries)} queries a month on\n${billNames(each, services)}`,
  }));
  const itemStyle = { color: style.back, borderColor: style.ink, borderWidth: 1.5 };
  return { type: "scatter", symbolSize: 10, z: 6, itemStyle, data };
}

function buildBills() {
  const { least, most } = content.bills;
  const slider = find("traffic");
  slider.max = Math.round(Math.log10(most / least) * NOTCHES);
  slider.addEventListener("input", () => {
    const queries = least * 10 ** (Number(slider.value) / NOTCHES);
    change({ traffic: Number(queries.toPrecision(3)) }, { dragging: true });
  });
}

// The controls, the sentence and the table; the picture is drawn with the others.
function showBills(view) {
  const { traffic } = view.state;
  const { least, seconds, traffic: usual } = content.bills;
  const slider = find("traffic");
  const notch = Math.round(Math.log10(traffic / least) * NOTCHES);
  if (Number(slider.value) !== notch) slider.value = notch;
  const rate = `${number(traffic / seconds)} a second, ${number((usual.peak * traffic) / seconds)} in the busiest hour`;
  find("traffic-value").textContent = rate;
  if (document.activeElement !== find("queries")) find("queries").value = large(traffic, true);
  const known = view.groups.length === 1 ? billsOf(view) : null;
  const sentence = known ? billSentence(known, view) : SEVERAL;
  slider.setAttribute("aria-valuetext", `${large(traffic)} queries a month`);
  find("bill-sentence").textContent = known ? `${sentence} ${paidSentence(known, view)}`.trim() : sentence;
  find("bill-table").replaceChildren(...(known?.services.length ? [billTable(known, view)] : []));
}

pictures.push({ id: "bill", draw: drawBill, uses: ({ state }) => state.traffic });
