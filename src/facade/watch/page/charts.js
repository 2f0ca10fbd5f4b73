// Lines over rounds, strips of chosen heads, and their legends, as SVG.

const NS = "http://www.w3.org/2000/svg";
const DASHES = ["", "7 3", "2 3", "9 3 2 3", "4 2", "1 2", "12 4", "6 2 1 2"];
export const COLOURS = 8;

// An SVG element; attributes that are null are left out.
export function svg(name, attributes = {}, children = []) {
  const element = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) if (value !== null) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

// An HTML element with a class and content; text is never taken for markup.
export function html(name, kind = "", ...content) {
  const element = document.createElement(name);
  if (kind) element.className = kind;
  element.append(...content.map((one) => (one instanceof Node ? one : String(one))));
  return element;
}

// The outline of one of eight marks around a point: groups can be told apart without colour.
export function mark(kind, x, y, r) {
  const shapes = [
    () => `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`,
    () => `M${x - r} ${y - r}h${2 * r}v${2 * r}h${-2 * r}Z`,
    () => `M${x} ${y - 1.2 * r}L${x + 1.15 * r} ${y + r}H${x - 1.15 * r}Z`,
    () => `M${x} ${y - 1.35 * r}L${x + 1.35 * r} ${y}L${x} ${y + 1.35 * r}L${x - 1.35 * r} ${y}Z`,
    () => `M${x - r / 2} ${y - 1.2 * r}h${r}v${0.7 * r}h${0.7 * r}v${r}h${-0.7 * r}v${0.7 * r}h${-r}v${-0.7 * r}h${-0.7 * r}v${-r}h${0.7 * r}Z`,
    () => `M${x} ${y + 1.2 * r}L${x + 1.15 * r} ${y - r}H${x - 1.15 * r}Z`,
    () => `M${x + 1.2 * r} ${y}L${x - r} ${y + 1.15 * r}V${y - 1.15 * r}Z`,
    () => `M${x - 1.2 * r} ${y}L${x + r} ${y + 1.15 * r}V${y - 1.15 * r}Z`,
  ];
  return shapes[kind % shapes.length]();
}

function nice(low, high, count) {
  const raw = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(raw || 1));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((one) => one >= raw) || power;
  const ticks = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high + step / 1e6; tick += step) ticks.push(Number(tick.toPrecision(10)));
  return ticks;
}

function extent(lines, scale) {
  const values = lines.flatMap((line) => [...line.values, line.final]).filter((v) => v !== null && v !== undefined);
  if (!values.length) return null;
  const low = Math.min(...values) * scale, high = Math.max(...values) * scale;
  const room = 0.06 * (high - low) || Math.abs(high) * 0.05 || 1;
  return [low - room, high + room];
}

// The reach of the y axis that panels which are compared have in common.
export function reachOf(sections, scale) {
  return extent(sections.flatMap((section) => section.lines), scale);
}

// Lines over rounds. `rounds`: how many the run will have; `reach`: of the y axis.
export function lineChart(width, lines, { rounds, scale = 1, label, reach = null, height = 210, unit = "" }) {
  const [low, high] = reach || extent(lines, scale) || [0, 1];
  const left = 44, right = 12, top = 8, bottom = 30, wide = Math.max(120, width);
  const last = Math.max(rounds || 1, ...lines.flatMap((line) => line.rounds), 2);
  const x = (round) => left + ((round - 1) / (last - 1)) * (wide - left - right);
  const y = (value) => top + (1 - (value * scale - low) / (high - low)) * (height - top - bottom);
  const parts = [];
  for (const tick of nice(low, high, 4)) {
    const at = y(tick / scale);
    if (at < top - 1 || at > height - bottom + 1) continue;
    parts.push(svg("path", { class: "grid", d: `M${left} ${at}H${wide - right}` }));
    parts.push(svg("text", { class: "tick", x: left - 6, y: at + 4, "text-anchor": "end" }, [String(tick)]));
  }
  parts.push(...roundAxis(x, last, height - bottom, wide));
  lines.forEach((line, number) => parts.push(...curve(line, number, x, y, last)));
  if (unit) parts.push(svg("text", { class: "tick", x: 4, y: height - 6 }, [unit]));
  return svg("svg", { viewBox: `0 0 ${wide} ${height}`, role: "img", "aria-label": label }, parts);
}

function roundAxis(x, last, at, wide) {
  const parts = [svg("path", { class: "grid", d: `M${x(1)} ${at}H${x(last)}` })];
  const ticks = nice(1, last, wide < 500 ? 4 : 6).filter((tick) => Number.isInteger(tick) && tick >= 1);
  if (ticks[0] !== 1 && (ticks[0] - 1) / (last - 1) > 0.08) ticks.unshift(1);
  for (const tick of ticks) parts.push(svg("text", { class: "tick", x: x(tick), y: at + 14, "text-anchor": "middle" }, [tick]));
  parts.push(svg("text", { class: "tick", x: (x(1) + x(last)) / 2, y: at + 27, "text-anchor": "middle" }, ["round"]));
  return parts;
}

function curve(line, number, x, y, last) {
  const colour = number % COLOURS, parts = [];
  const points = line.rounds.map((round, i) => [round, line.values[i]]).filter(([, value]) => value !== null && value !== undefined);
  if (points.length > 1) {
    const d = points.map(([round, value], i) => `${i ? "L" : "M"}${x(round).toFixed(1)} ${y(value).toFixed(1)}`).join("");
    parts.push(svg("path", { class: `curve s${colour}`, d, "stroke-dasharray": DASHES[number % DASHES.length] || null }));
  }
  if (points.length <= 40) {
    for (const [round, value] of points) parts.push(svg("path", { class: `mark f${colour}`, d: mark(number, x(round), y(value), 3) }));
  }
  if (line.final !== null && line.final !== undefined) {
    parts.push(svg("path", { class: `last f${colour}`, d: mark(number, x(last), y(line.final), 5.5) }));
  }
  return parts;
}

// One entry for each line: how it looks, what it is, where it is now.
export function legend(lines, say) {
  const list = html("ul", "legend");
  lines.forEach((line, number) => {
    const dash = DASHES[number % DASHES.length] || null;
    const sample = svg("svg", { viewBox: "0 0 26 14", "aria-hidden": "true" }, [
      svg("path", { class: `curve s${number % COLOURS}`, d: "M0 7H26", "stroke-dasharray": dash }),
      svg("path", { class: `mark f${number % COLOURS}`, d: mark(number, 13, 7, 4) }),
    ]);
    list.append(html("li", "", sample, html("span", "", line.name), html("b", "", say(line))));
  });
  return list;
}

const letterNumber = (letter) => (letter === "." ? -1 : parseInt(letter, 36));

// A row for every node, a column for a round or more: the head that it chose. Rows of one group stand together.
export function headStrip(width, heads, { rounds, compact = false }) {
  const rows = heads.rows.length, wide = Math.max(160, width), small = compact ? 0.6 : 1;
  const tall = Math.max(3, (rows <= 8 ? 18 : rows <= 16 ? 14 : rows <= 32 ? 10 : 6) * small);
  const named = heads.rows.map((row) => row.name.replace(/^node /, ""));
  const left = compact ? 4 : 12 + 6.2 * Math.min(16, Math.max(2, ...named.map((name) => name.length)));
  const right = compact ? 4 : 26, bottom = compact ? 4 : 32;
  const last = Math.max(rounds || 1, heads.done, 2), span = heads.span;
  const x = (round) => left + ((round - 1) / last) * (wide - left - right);
  const at = [];
  let below = 2;
  heads.rows.forEach((row, i) => {
    if (i && rows > heads.groups.length && row.group !== heads.rows[i - 1].group) below += compact ? 2 : 5;
    at.push(below);
    below += tall;
  });
  const parts = [], paths = new Map(), every = rows <= 16 ? 1 : rows <= 32 ? 2 : 8;
  heads.rows.forEach((row, i) => {
    parts.push(svg("rect", { class: "room", x: left, y: at[i], width: wide - left - right, height: tall - 1 }));
    for (let from = 0; from < heads.columns.length; ) {
      const head = letterNumber(heads.columns[from][row.place]);
      let to = from + 1;
      while (to < heads.columns.length && letterNumber(heads.columns[to][row.place]) === head) to += 1;
      if (head >= 0) {
        const begin = x(from * span + 1), end = x(Math.min(to * span, heads.done) + 1);
        paths.set(head, (paths.get(head) || "") + `M${begin.toFixed(1)} ${at[i]}H${end.toFixed(1)}v${tall - 1}H${begin.toFixed(1)}Z`);
      }
      from = to;
    }
    if (compact) return;
    const middle = at[i] + tall / 2 + 3.5;
    if (i % every === 0) parts.push(svg("text", { class: "tick", x: left - 5, y: middle, "text-anchor": "end" }, [named[i]]));
    const now = lastHead(heads, row);
    if (i % every === 0 && now >= 0) parts.push(svg("text", { x: wide - right + 5, y: middle }, [now]));
  });
  for (const [head, d] of paths) parts.push(svg("path", { class: `f${head % COLOURS}`, d }));
  if (!compact) parts.push(...roundAxis(x, last, below + 2, wide));
  const label = `Head chosen by each of ${rows} rows, over rounds 1 to ${heads.done}`;
  return svg("svg", { viewBox: `0 0 ${wide} ${below + bottom}`, role: "img", "aria-label": label }, parts);
}

function lastHead(heads, row) {
  for (let i = heads.columns.length - 1; i >= 0; i -= 1) {
    const head = letterNumber(heads.columns[i][row.place]);
    if (head >= 0) return head;
  }
  return -1;
}

// How many rows have each head now.
export function headLegend(heads) {
  const counts = new Map();
  for (const row of heads.rows) {
    const head = lastHead(heads, row);
    if (head >= 0) counts.set(head, (counts.get(head) || 0) + 1);
  }
  return colourLegend([...counts].sort((a, b) => a[0] - b[0]).map(([head, count]) => [head, `head ${head}`, `${count} now`]));
}

export function colourLegend(entries) {
  const list = html("ul", "legend");
  for (const [colour, name, more] of entries) {
    const sample = svg("svg", { viewBox: "0 0 26 14", "aria-hidden": "true" }, [
      svg("rect", { class: `f${colour % COLOURS}`, x: 6, y: 1, width: 14, height: 12 }),
    ]);
    list.append(html("li", "", sample, html("span", "", name), html("b", "", more)));
  }
  return list;
}

// Of many nodes: the share of a group that chose each head, over rounds.
export function headShares(width, group, { rounds, span }) {
  const height = 110, left = 44, right = 12, top = 6, bottom = 30, wide = Math.max(160, width);
  const last = Math.max(rounds || 1, ...group.rounds, 2);
  const x = (round) => left + ((round - 1) / last) * (wide - left - right);
  const y = (share) => top + (1 - share) * (height - top - bottom);
  const parts = [svg("rect", { class: "room", x: left, y: top, width: wide - left - right, height: height - top - bottom })];
  const paths = group.values.map(() => "");
  group.rounds.forEach((round, i) => {
    let below = 0;
    const from = x(i ? group.rounds[i - 1] + 1 : 1).toFixed(1), to = x(round + 1).toFixed(1);
    group.values.forEach((values, head) => {
      const share = values[i] || 0;
      if (share > 0) paths[head] += `M${from} ${y(below).toFixed(1)}H${to}V${y(below + share).toFixed(1)}H${from}Z`;
      below += share;
    });
  });
  paths.forEach((d, head) => d && parts.push(svg("path", { class: `f${head % COLOURS}`, d })));
  for (const share of [0, 0.5, 1]) parts.push(svg("text", { class: "tick", x: left - 6, y: y(share) + 4, "text-anchor": "end" }, [`${100 * share}%`]));
  parts.push(...roundAxis(x, last, height - bottom, wide));
  const now = group.values.map((values, head) => `head ${head}: ${Math.round(100 * (values[values.length - 1] || 0))} %`).join(", ");
  return svg("svg", { viewBox: `0 0 ${wide} ${height}`, role: "img", "aria-label": `Choices in ${group.name}, now ${now}` }, parts);
}
