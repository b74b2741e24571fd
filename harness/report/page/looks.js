// How pictures look: colours, dashes and shapes that colour-blind people tell apart, axes with units, fewer points.
(function (page) {
  "use strict";

  const { number } = page.numbers;
  // Okabe and Ito's colours; yellow last and darker, as it is faint on white.
  const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#B8A800"];
  const DASHES = ["solid", [8, 4], [2, 3], [10, 3, 2, 3]];
  const SYMBOLS = ["circle", "rect", "triangle", "diamond", "roundRect"];
  const CROSS = "path://M0 1L1 0L5 4L9 0L10 1L6 5L10 9L9 10L5 6L1 10L0 9L4 5Z";
  const FEW = 200; // points that are all drawn
  const MOST_POINTS = 400;
  const SQUARES = 40; // to a side of a picture
  const SVG = "http://www.w3.org/2000/svg";

  // Colours of the page as it is shown now, and one look for each system.
  function styles(view) {
    const css = window.getComputedStyle(document.documentElement);
    const of = (name) => css.getPropertyValue(name).trim();
    const systems = new Set();
    const points = new Set(); // of sweeps, after the systems: these are drawn together far more often
    for (const group of view.groups) {
      for (const row of group.rows) {
        const { system, sweep } = page.content.rows[row];
        systems.add(sweep ? sweep.system : system);
        if (sweep) points.add(system);
      }
    }
    const others = Array.from(points).filter((system) => !systems.has(system));
    const looks = new Map([...Array.from(systems).sort(), ...others.sort()].map((system, at) => [system, look(at)]));
    return {
      ink: of("--ink"),
      quiet: of("--quiet"),
      line: of("--line"),
      back: of("--back"),
      font: of("--font"),
      look: (system) => looks.get(system),
    };
  }

  function look(at) {
    const round = Math.floor(at / COLOURS.length);
    return {
      colour: COLOURS[at % COLOURS.length],
      dash: DASHES[(at + round) % DASHES.length],
      symbol: SYMBOLS[(at + round) % SYMBOLS.length],
    };
  }

  // A line with its dash, or a point with its shape, beside its name in a legend.
  function swatch(entry, style) {
    const svg = document.createElementNS(SVG, "svg");
    const set = (node, values) => Object.entries(values).forEach(([name, value]) => node.setAttribute(name, value));
    set(svg, { width: entry.dash ? 28 : 14, height: 12, "aria-hidden": "true" });
    const middle = entry.dash ? 14 : 7;
    if (entry.dash) {
      const stroke = document.createElementNS(SVG, "line");
      set(stroke, { x1: 0, x2: 28, y1: 6, y2: 6, stroke: entry.colour, "stroke-width": 2 });
      if (Array.isArray(entry.dash)) stroke.setAttribute("stroke-dasharray", entry.dash.join(" "));
      svg.append(stroke);
    }
    if (entry.symbol) svg.append(shape(entry, middle, style, set));
    return svg;
  }

  function shape(entry, x, style, set) {
    const points = {
      triangle: [
        [0, -5],
        [5, 4],
        [-5, 4],
      ],
      diamond: [
        [0, -6],
        [6, 0],
        [0, 6],
        [-6, 0],
      ],
      rect: [
        [-4, -4],
        [4, -4],
        [4, 4],
        [-4, 4],
      ],
      roundRect: [
        [-5, -3],
        [5, -3],
        [5, 3],
        [-5, 3],
      ],
    }[entry.symbol];
    const node = document.createElementNS(SVG, points ? "polygon" : entry.symbol === "cross" ? "path" : "circle");
    const fill = entry.hollow ? style.back : entry.colour;
    if (points) set(node, { points: points.map(([dx, dy]) => `${x + dx},${6 + dy}`).join(" ") });
    else if (entry.symbol === "cross") set(node, { d: `M${x - 4} 2l8 8m0 -8l-8 8`, "stroke-width": 2 });
    else set(node, { cx: x, cy: 6, r: 4.5 });
    set(node, { fill, stroke: entry.colour });
    return node;
  }

  // An axis of numbers with its unit; logarithmic where they span more than a decade.
  function axis(values, name, style, more) {
    const positive = values.filter((value) => value > 0);
    const span = positive.length ? largest(positive) / smallest(positive) : 1;
    const log = span > 10 && positive.length === values.length;
    return {
      type: log ? "log" : "value",
      name: log ? `${name} (logarithmic)` : name,
      nameLocation: "middle",
      nameTextStyle: { color: style.ink, fontSize: 12 },
      scale: true,
      axisLine: { show: true, lineStyle: { color: style.quiet } },
      axisTick: { show: true },
      axisLabel: { color: style.ink, hideOverlap: true, formatter: tick },
      splitLine: { lineStyle: { color: style.line } },
      minorTick: { show: log },
      ...more,
    };
  }

  // 0.1, 10, 1,000: as short as they are exact.
  function tick(value) {
    const short = Number(value.toPrecision(3));
    return Math.abs(short) >= 1000 ? number(short, 0) : String(short);
  }

  function largest(values) {
    return values.reduce((most, value) => Math.max(most, value), -Infinity);
  }

  function smallest(values) {
    return values.reduce((least, value) => Math.min(least, value), Infinity);
  }

  // One of the points that would cover one another: of one colour, in the same small square of the picture.
  // at(item) gives [x, y]; log says which of the two are drawn on a logarithmic axis.
  function thinned(items, at, colourOf, log) {
    if (items.length <= FEW) return items;
    const places = items.map((item) => at(item).map((value, side) => (log[side] ? Math.log(value) : value)));
    const ends = [0, 1].map((side) => {
      const values = places.map((place) => place[side]);
      return [smallest(values), largest(values)];
    });
    const seen = new Set();
    return items.filter((item, number_) => {
      const squares = places[number_].map((value, side) =>
        Math.round(((value - ends[side][0]) / (ends[side][1] - ends[side][0] || 1)) * SQUARES),
      );
      const key = `${squares} ${colourOf(item)}`;
      if (seen.has(key) || seen.size >= MOST_POINTS) return false;
      return seen.add(key);
    });
  }

  page.looks = { styles, look, swatch, axis, largest, smallest, thinned, CROSS };
})((window.harnessPage = window.harnessPage || {}));
