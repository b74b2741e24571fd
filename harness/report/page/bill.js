// A month's bill at some traffic: the page's copy of harness/pricing/bill.py and bill_curve.py, which say why.

// service: {qps, usd (an hour), build, storage, tokens (US$ for a million queries); null: not known}.
function billOf(service, queries) {
  const { traffic, seconds, hours } = content.bills;
  const mean = queries / seconds;
  const needed = Math.ceil(((traffic.peak * mean) / service.qps) * (1 - 1e-12));
  const machines = Math.max(traffic.machines, needed);
  const search = machines * service.usd * hours;
  const builds = service.build === null ? null : service.build * traffic.builds;
  const storage = service.storage === null ? null : service.storage * machines;
  const tokens = (service.tokens ?? null) === null ? null : (service.tokens * queries) / 1e6;
  const total = search + (storage ?? 0) + (builds ?? 0) + (tokens ?? 0);
  return { machines, busy: mean / (machines * service.qps), search, builds, storage, tokens, total };
}

// US$ a month of a service without machines: {paid (US$ for a million queries), build, storage, tokens}.
function paidUsd(service, queries) {
  const fixed = (service.build ?? 0) * content.bills.traffic.builds + (service.storage ?? 0);
  return ((service.paid + (service.tokens ?? 0)) * queries) / 1e6 + fixed;
}

function leastPaid(services, queries) {
  return Math.min(...services.map((service) => paidUsd(service, queries)));
}

// The first more traffic at which machines cost no more than queries that are paid one by one; null: there is none.
function breakEven(paid, services, queries) {
  const { most } = content.bills;
  const win = (at) => leastBill(services, at) <= leastPaid(paid, at);
  const places = [...services.flatMap((service) => stepsOf(service, most)).sort((a, b) => a - b), most];
  let before = Math.max(queries, 1);
  for (const after of places.filter((place) => place > queries)) {
    if (win(after)) return boundary((at) => !win(at), before, after);
    before = after;
  }
  return null;
}

function leastBill(services, queries) {
  return Math.min(...services.map((service) => billOf(service, queries).total));
}

// Monthly queries that fill one machine in the busiest hour.
function fullOf({ qps }) {
  return (qps * content.bills.seconds) / content.bills.traffic.peak;
}

// Beyond which a machine more is needed; of many machines, 2 % more of them.
function stepsOf(service, most) {
  const { least, single, share, traffic } = content.bills;
  const full = fullOf(service);
  const found = [];
  for (let machines = traffic.machines; machines * full < most; ) {
    if (machines * full >= least) found.push(machines * full);
    machines += machines >= single ? Math.ceil(machines * share) : 1;
  }
  return found;
}

function placesOf(steps, most) {
  const { least, beyond } = content.bills;
  return [least, ...steps.sort((a, b) => a - b).flatMap((step) => [step, step * beyond]), most];
}

// Both ends of each step of the cheapest of some services: [queries, US$ a month].
function curveOf(services) {
  const { most } = content.bills;
  const places = placesOf(services.flatMap((service) => stepsOf(service, most)), most);
  return places.map((queries) => [queries, leastBill(services, queries)]);
}

// The places of the services whose bill is the least, or within 1 % of it.
function cheapestOf(services, queries) {
  const totals = services.map((service) => billOf(service, queries).total);
  const most = Math.min(...totals) * (1 + content.bills.same);
  return totals.flatMap((total, at) => (total <= most ? [at] : []));
}

// The queries beyond which a service is never among the cheapest: even parts of its machines cost more than another's
// whole ones.
function lastQueries(service, services) {
  const { hours, same, traffic } = content.bills;
  const facts = (one) => {
    const each = one.usd * hours + (one.storage ?? 0);
    return { each, rate: each / fullOf(one) + (one.tokens ?? 0) / 1e6, fixed: (one.build ?? 0) * traffic.builds };
  };
  const own = facts(service);
  const passed = services.map(facts).filter(({ rate }) => own.rate > rate * (1 + same));
  const ends = passed.map(({ each, rate, fixed }) => {
    const whole = (each * traffic.machines + fixed) * (1 + same);
    return Math.max(0, whole - own.fixed) / (own.rate - rate * (1 + same));
  });
  return Math.min(content.bills.most, ...ends);
}

// Each traffic from which on others are the cheapest: {queries, cheapest}, ascending.
function changesOf(services) {
  const { least, most } = content.bills;
  const lasts = services.map((service) => lastQueries(service, services));
  const places = placesOf(services.flatMap((service, at) => stepsOf(service, lasts[at])), most);
  const at = (queries) => {
    const able = services.flatMap((_, place) => (lasts[place] >= queries ? [place] : []));
    return cheapestOf(able.map((place) => services[place]), queries).map((place) => able[place]);
  };
  const found = [];
  let [before, now] = [least, at(least)];
  for (const after of places) {
    const then = at(after);
    while (String(now) !== String(then)) {
      before = boundary((queries) => String(at(queries)) === String(now), before, after);
      now = at(before);
      found.push({ queries: before, cheapest: now });
    }
    before = after;
  }
  return found;
}

// The first queries at which a condition fails that holds at `low` and fails at `high`.
function boundary(holds, low, high) {
  while (high - low > 1e-11 * high) {
    const middle = Math.sqrt(low * high);
    if (holds(middle)) low = middle;
    else high = middle;
  }
  return high;
}

// "3 million", "1.58 billion"; with letters "3M", as the command line reads it.
const LARGE = [[1e12, " trillion", "T"], [1e9, " billion", "G"], [1e6, " million", "M"], [1e3, " thousand", "k"]];

function large(amount, letters = false) {
  const size = LARGE.find(([least]) => amount >= least * 0.9995);
  const short = (value) => String(Number(value.toPrecision(3)));
  return size ? short(amount / size[0]) + size[letters ? 2 : 1] : short(amount);
}

// Queries that somebody wrote: 250000, 3M, 1.5G; null for anything else.
function queriesIn(text) {
  const match = /^([0-9][0-9_,]*(?:\.[0-9]+)?) ?([kMG]?)$/.exec(text.trim());
  const value = match ? Number(match[1].replace(/[_,]/g, "")) * { "": 1, k: 1e3, M: 1e6, G: 1e9 }[match[2]] : NaN;
  return value >= content.bills.least && value <= content.bills.most ? value : null;
}
