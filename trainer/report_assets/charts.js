// Line charts with bands and interval points, and a plot of rates by row, all in SVG.
const WIDTH = 380, HEIGHT = 210, LEFT = 46, RIGHT = 10, TOP = 8, BOTTOM = 24;
const COLOURS = [1, 2, 3, 4, 5, 6].map((i) => `var(--c${i})`);

function niceTicks(low, high, count) {
  const raw = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) ticks.push(Number((i * step).toPrecision(12)));
  return ticks;
}

function tickText(x) {
  const size = Math.abs(x);
  return size !== 0 && (size < 1e-3 || size >= 1e5) ? x.toExponential(1) : String(x);
}

function smooth(values) {
  const half = Math.floor(values.length / 20);
  if (half < 1) return null;
  return values.map((value, i) => {
    if (value === null) return null;
    const near = values.slice(Math.max(0, i - half), i + half + 1).filter((x) => x !== null);
    return near.reduce((a, b) => a + b, 0) / near.length;
  });
}

function linePath(xs, ys, x, y) {
  let path = "", pen = "M";
  xs.forEach((at, i) => {
    if (ys[i] === null || ys[i] === undefined) { pen = "M"; return; }
    // The empty stroke makes a lone point a dot.
    path += `${pen}${x(at).toFixed(1)} ${y(ys[i]).toFixed(1)}${pen === "M" ? "h0" : ""}`;
    pen = "L";
  });
  return path;
}

function bandPath(xs, low, high, x, y) {
  const known = xs.map((_, i) => i).filter((i) => low[i] !== null && high[i] !== null);
  const there = known.map((i) => `${x(xs[i]).toFixed(1)} ${y(high[i]).toFixed(1)}`);
  const back = known.reverse().map((i) => `${x(xs[i]).toFixed(1)} ${y(low[i]).toFixed(1)}`);
  return there.length > 1 ? `M${there.join("L")}L${back.join("L")}Z` : "";
}

function verticalRange(series, fixed) {
  const all = series.flatMap((s) => [...s.values, ...(s.low || []), ...(s.high || [])]).filter((v) => v !== null);
  let low = Math.min(...all), high = Math.max(...all);
  if (low >= 0 && low < 0.4 * high) low = 0;
  if (high === low) { high += Math.abs(high) || 1; low -= low > 0 ? 0 : Math.abs(low) * 0.5; }
  const pad = 0.05 * (high - low);
  const range = [low === 0 ? 0 : low - pad, high + pad];
  return fixed ? [Math.max(fixed[0], range[0]), Math.min(fixed[1], range[1])] : range;
}

// series: {name, xs, values, low, high, dots}; range: hard limits of the y axis; format: number to text.
function lineChart({ title, note, series, range, format = compact }) {
  const label = format === percent ? (v) => `${Math.round(100 * v)} %` : tickText;
  const within = (v) => (v === null || !range ? v : Math.min(range[1], Math.max(range[0], v)));
  series = series.filter((s) => s.values.some((v) => v !== null))
    .map((s) => (s.low ? { ...s, low: s.low.map(within), high: s.high.map(within) } : s));
  if (!series.length) return null;
  const xs = [...new Set(series.flatMap((s) => s.xs))].sort((a, b) => a - b);
  const [low, high] = verticalRange(series, range);
  const first = xs[0], last = xs.length > 1 ? xs[xs.length - 1] : xs[0] + 1;
  const x = (v) => LEFT + ((v - first) / (last - first)) * (WIDTH - LEFT - RIGHT);
  const y = (v) => TOP + (1 - (v - low) / (high - low)) * (HEIGHT - TOP - BOTTOM);
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": title });
  for (const tick of niceTicks(low, high, 5)) {
    picture.append(
      svg("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(tick), y2: y(tick) }),
      svg("text", { x: LEFT - 6, y: y(tick) + 4, "text-anchor": "end" }, label(tick)),
    );
  }
  for (const tick of niceTicks(first, last, 5).filter(Number.isInteger)) {
    picture.append(svg("text", { x: x(tick), y: HEIGHT - 8, "text-anchor": "middle" }, String(tick)));
  }
  series.forEach((s, i) => picture.append(...drawSeries(s, COLOURS[i % COLOURS.length], x, y)));
  picture.append(...hoverParts(picture, series, xs, x, format));
  const legend = series.length > 1 ? legendOf(series.map((s) => s.name)) : null;
  return el("div", { class: "card chart" },
    el("div", {}, el("span", { class: "title" }, title), note ? el("span", { class: "note" }, ` ${note}`) : null),
    legend, picture);
}

function drawSeries(s, colour, x, y) {
  const parts = [];
  if (s.dots) {
    s.xs.forEach((at, i) => parts.push(
      svg("line", { x1: x(at), x2: x(at), y1: y(s.low[i]), y2: y(s.high[i]), stroke: colour, "stroke-width": 1.5, opacity: 0.55 }),
      svg("circle", { cx: x(at), cy: y(s.values[i]), r: 3.2, fill: colour })));
  } else if (s.low) {
    parts.push(svg("path", { d: bandPath(s.xs, s.low, s.high, x, y), fill: colour, opacity: 0.16 }));
  }
  const smoothed = s.dots ? null : smooth(s.values);
  const line = (values, opacity, width) =>
    svg("path", { d: linePath(s.xs, values, x, y), fill: "none", stroke: colour, "stroke-width": width, opacity, "stroke-linejoin": "round", "stroke-linecap": "round" });
  parts.push(line(s.values, smoothed ? 0.35 : 1, smoothed ? 1 : 1.8));
  if (smoothed) parts.push(line(smoothed, 1, 2));
  return parts;
}

function hoverParts(picture, series, xs, x, format) {
  const cursor = svg("line", { class: "grid", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
  const area = svg("rect", {
    x: LEFT, y: TOP, width: WIDTH - LEFT - RIGHT, height: HEIGHT - TOP - BOTTOM, fill: "transparent",
    onmousemove: (event) => {
      const box = picture.getBoundingClientRect();
      const at = ((event.clientX - box.left) / box.width) * WIDTH;
      const step = xs.reduce((best, v) => (Math.abs(x(v) - at) < Math.abs(x(best) - at) ? v : best));
      cursor.setAttribute("x1", x(step));
      cursor.setAttribute("x2", x(step));
      cursor.setAttribute("visibility", "visible");
      const lines = series.map((s) => {
        const i = s.xs.indexOf(step);
        if (i < 0 || s.values[i] === null) return null;
        const interval = s.low ? ` (${format(s.low[i])} to ${format(s.high[i])})` : "";
        return `${s.name}: ${format(s.values[i])}${interval}`;
      });
      showTooltip(event, [`step ${step}`, ...lines.filter(Boolean)].join("\n"));
    },
    onmouseleave: () => { cursor.setAttribute("visibility", "hidden"); hideTooltip(); },
  });
  return [cursor, area];
}

function legendOf(names, colours = COLOURS) {
  return el("div", { class: "legend" }, names.map((name, i) =>
    el("span", {}, el("i", { style: `background:${colours[i % colours.length]}` }), name)));
}

// rows: {name, marks: [{value, low, high, label, hollow}]}: rates in [0, 1] with intervals, one row a kind.
function ratePlot({ title, rows, colour }) {
  const left = 200, width = 560, right = 16, rowHeight = 34, height = rows.length * rowHeight + 28;
  const x = (v) => left + v * (width - left - right);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
  for (const tick of [0, 0.25, 0.5, 0.75, 1]) {
    picture.append(
      svg("line", { class: "grid", x1: x(tick), x2: x(tick), y1: 4, y2: height - 22 }),
      svg("text", { x: x(tick), y: height - 6, "text-anchor": "middle" }, `${100 * tick} %`));
  }
  rows.forEach((row, i) => {
    const middle = 4 + (i + 0.5) * rowHeight;
    picture.append(svg("text", { x: left - 10, y: middle + 4, "text-anchor": "end" }, row.name));
    row.marks.forEach((mark, j) => {
      const at = middle + (j - (row.marks.length - 1) / 2) * 11;
      const stroke = mark.hollow ? "var(--c6)" : colour;
      const group = svg("g", {
        onmousemove: (event) => showTooltip(event, `${row.name}, ${mark.label}`), onmouseleave: hideTooltip,
      });
      group.append(
        svg("line", { x1: x(mark.low), x2: x(mark.high), y1: at, y2: at, stroke, "stroke-width": 2, opacity: 0.6 }),
        svg("circle", { cx: x(mark.value), cy: at, r: 4.5, stroke, "stroke-width": 2, fill: mark.hollow ? "var(--card)" : stroke }));
      picture.append(group);
    });
  });
  return el("div", { class: "card chart" }, el("div", { class: "title" }, title),
    legendOf(["first evaluation", "last evaluation"], ["var(--c6)", colour]), picture);
}
