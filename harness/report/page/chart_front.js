// Accuracy against what it costs, with the Pareto front (Figure 1 of Santhanam et al. 2023).
(function (page) {
  "use strict";

  const { number } = page.numbers;
  const { charts, looks } = page;
  const SHAPES = { front: "circle", contested: "diamond", dominated: "circle" };
  const MOST_BARS = 150;
  const MOST_LABELS = 12;

  function axisOf(name) {
    return page.content.axes.find((axis) => axis.name === name);
  }

  function labelOf(name) {
    const axis = axisOf(name);
    return name === "cost" ? axis.unit : `${axis.label}, ${axis.unit}`;
  }

  function points(view, group) {
    const { across } = view.state;
    const { of } = page.view.front(group, view.state, across);
    const x = page.data.column(across, view.settings);
    const y = page.data.column("accuracy", view.settings);
    return view.rows
      .filter((row) => of.has(row))
      .map((row) => {
        const { system, profile, sweep } = page.content.rows[row];
        return {
          row,
          state: of.get(row),
          x: x.value[row],
          y: y.value[row],
          ends: [x.low[row], x.high[row], y.low[row], y.high[row]],
          system,
          profile,
          sweep,
          family: sweep ? sweep.system : system,
        };
      });
  }

  // The points of each sweep on each hardware profile, in order of cost.
  function curves(all) {
    const held = new Map();
    for (const point of all.filter(({ sweep }) => sweep)) {
      held.set(point.sweep.curve, [...(held.get(point.sweep.curve) || []), point]);
    }
    return Array.from(held.values())
      .filter((some) => some.length > 1)
      .map((some) => some.sort((a, b) => a.x - b.x || a.y - b.y));
  }

  function draw(view, style) {
    const group = charts.one(view);
    if (!group) return { why: charts.SEVERAL };
    const { across } = view.state;
    const all = points(view, group);
    if (!all.length) return { why: `No row that passes the filter has both an accuracy and a value of ${across}.` };
    if (all.length === 1) {
      const [{ system, profile, x, y }] = all;
      const accuracy = `${number(y, 1)} points ${page.content.measures[view.state.measure]}`;
      return { why: `${system} on ${profile} alone has both: ${accuracy}, ${number(x)} ${axisOf(across).unit}.` };
    }
    markLeft(all);
    const front = all.filter((point) => point.state === "front").sort((a, b) => a.x - b.x || a.y - b.y);
    const contested = all.filter((point) => point.state === "contested");
    const barred = all.length <= MOST_BARS ? [...front, ...contested] : [];
    const xAxis = looks.axis(
      [...all.map((point) => point.x), ...barred.flatMap((point) => point.ends.slice(0, 2)).filter((end) => end > 0)],
      labelOf(across),
      style,
      { nameGap: 32 },
    );
    const thin = (some) =>
      looks.thinned(
        some,
        (point) => [point.x, point.y],
        (point) => style.look(point.family).colour,
        [xAxis.type === "log", false],
      );
    const measure = page.content.measures[view.state.measure];
    const heights = [...all.map((point) => point.y), ...barred.flatMap((point) => point.ends.slice(2))];
    const swept = all.filter(({ sweep }) => sweep).length;
    const named = (some) => some.length <= MOST_LABELS && front.length + some.length <= 2 * MOST_LABELS;
    return {
      summary: summary(front, contested, all, across),
      columns: [
        { text: "system" },
        { text: "hardware profile" },
        { text: labelOf(across), numeric: true },
        { text: `${measure}, points`, numeric: true },
        { text: "front" },
      ],
      rows: () =>
        all
          .slice()
          .sort((a, b) => b.y - a.y)
          .map((point) => [point.system, point.profile, number(point.x), number(point.y, 1), point.state]),
      legend: legend(all, style),
      option: {
        grid: { left: 58, right: 40, top: 16, bottom: 52 },
        xAxis,
        yAxis: looks.axis([0], `${measure}, points`, style, { nameGap: 40, ...room(heights.filter(Number.isFinite)) }),
        series: [
          line(front, style),
          ...curves(all).map((some) => curve(some, style)),
          ...(barred.length ? [bars(barred, style)] : []),
          scatter(thin(all.filter((point) => point.state === "dominated")), "dominated", style, false, swept),
          scatter(thin(contested), "contested", style, named(contested), swept),
          scatter(front, "front", style, named(front), swept),
        ],
      },
    };
  }

  function markLeft(all) {
    const turn = all.every((point) => point.x > 0) ? Math.log : (value) => value;
    const places = all.map((point) => turn(point.x));
    const [low, high] = [looks.smallest(places), looks.largest(places)];
    all.forEach((point, at) => {
      point.left = places[at] - low < 0.2 * (high - low);
    });
  }

  // Whole steps around all points and bars, so that none lies on the frame.
  function room(values) {
    const step = looks.largest(values) - looks.smallest(values) > 8 ? 5 : 1;
    const min = Math.floor((looks.smallest(values) - step / 5) / step) * step;
    return { min: Math.max(0, min), max: Math.ceil((looks.largest(values) + step / 5) / step) * step };
  }

  function summary(front, contested, all, across) {
    const names = front.slice(0, 6).map((point) => `${point.system} on ${point.profile}`);
    const more = front.length > 6 ? " and others" : "";
    const said = contested.length
      ? `; ${contested.length} contested (◆): worse by value, but the intervals do not say so`
      : "";
    const rest = all.length - front.length - contested.length;
    return `Front of accuracy and ${across} (●): ${names.join(", ") || "none that passes the filter"}${more}${said}; ${rest} dominated (○).`;
  }

  function legend(all, style) {
    const names = new Map(all.map(({ family, sweep }) => [family, sweep ? sweep.named : family]));
    const lined = new Set(curves(all).map(([point]) => point.family));
    return Array.from(names.keys())
      .sort()
      .slice(0, 24)
      .map((family) => ({
        text: names.get(family),
        colour: style.look(family).colour,
        symbol: "circle",
        dash: lined.has(family) ? "solid" : undefined,
      }));
  }

  // Points of sweeps are labelled by their values, all others by their names where these are few.
  function scatter(some, state, style, named, swept) {
    const hollow = state === "dominated";
    return {
      type: "scatter",
      name: state,
      symbol: SHAPES[state],
      symbolSize: { front: 11, contested: 14, dominated: 8 }[state],
      z: { front: 5, contested: 4, dominated: 3 }[state],
      data: some.map((point) => ({
        value: [point.x, point.y],
        // At the left edge a centred name would lie on the axis.
        label: {
          position: point.left ? [0, -15] : "top",
          ...(point.sweep ? { show: swept <= 2 * MOST_LABELS, formatter: () => point.sweep.label } : {}),
        },
        name: `${point.system}, ${point.profile}`,
        itemStyle: {
          color: hollow ? style.back : style.look(point.family).colour,
          borderColor: hollow ? style.look(point.family).colour : style.ink,
          borderWidth: hollow ? 1.5 : 1,
        },
      })),
      label: {
        show: named,
        formatter: "{b}",
        position: "top",
        distance: 7,
        color: style.ink,
        fontSize: 11,
        textBorderColor: style.back,
        textBorderWidth: 3,
      },
      labelLayout: { hideOverlap: true, moveOverlap: "shiftY" },
      tooltip: {
        formatter: ({ name, value }) => `${name}\n${number(value[0])}; ${number(value[1], 1)} points\n${state}`,
      },
    };
  }

  function line(front, style) {
    return {
      type: "line",
      step: "end",
      silent: true,
      symbol: "none",
      z: 2,
      lineStyle: { color: style.quiet, width: 1.5, type: "solid" },
      data: front.map((point) => [point.x, point.y]),
    };
  }

  function curve(some, style) {
    return {
      type: "line",
      silent: true,
      symbol: "none",
      z: 2,
      lineStyle: { color: style.look(some[0].family).colour, width: 1.5, opacity: 0.8 },
      data: some.map((point) => [point.x, point.y]),
    };
  }

  // The intervals that decide who is contested.
  function bars(some, style) {
    return {
      type: "custom",
      silent: true,
      z: 2,
      clip: true,
      data: some.map((point) => [point.x, point.y, ...point.ends.map((end, at) => (at > 1 || end > 0 ? end : NaN))]),
      encode: { x: [0, 2, 3], y: 1 }, // the axis reaches the ends of the bars
      renderItem: (_, api) => {
        const [x, y, left, right, low, high] = [0, 1, 2, 3, 4, 5].map((at) => api.value(at));
        const children = [];
        const stroke = { stroke: style.quiet, lineWidth: 1, opacity: 0.45 };
        const add = (from, to) =>
          children.push({ type: "line", shape: { x1: from[0], y1: from[1], x2: to[0], y2: to[1] }, style: stroke });
        if (left > 0 && right > 0) add(api.coord([left, y]), api.coord([right, y]));
        if (Number.isFinite(low) && Number.isFinite(high)) add(api.coord([x, low]), api.coord([x, high]));
        return { type: "group", children };
      },
    };
  }

  function controls(view, box) {
    if (!box.firstChild) {
      const options = page.state.across().map((name) => [name, labelOf(name)]);
      box.append(page.elements.select("across", "Accuracy against", options, (across) => page.main.change({ across })));
    }
    page.elements.find("across").value = view.state.across;
  }

  charts.register({
    id: "front",
    section: "pictures-first",
    title: "Accuracy against cost, with the Pareto front",
    key: (view) => [charts.choice(view), view.state.across].join("\n"),
    controls,
    draw,
  });
})((window.harnessPage = window.harnessPage || {}));
