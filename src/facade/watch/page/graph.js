// Who hears whom in a round: a circle of nodes, or a table between groups where there are too many.

import { COLOURS, colourLegend, html, mark, svg } from "./charts.js";

const STATES = ["heard", "dropped", "missed", "awaited"];
const WORDS = ["heard", "dropped by the guard", "missed", "still to come"];

export function graphPicture(width, graph, named) {
  if (graph.between) return betweenGroups(graph);
  const nodes = graph.nodes, n = nodes.length, wide = Math.min(Math.max(200, width), 470);
  const size = n <= 8 ? Math.min(wide, 300) : wide, room = named ? 34 : 22, radius = size / 2 - room, middle = size / 2;
  const r = n <= 8 ? 9 : n <= 16 ? 7.5 : n <= 40 ? 6 : 4;
  const place = nodes.map((_, i) => {
    const turn = (2 * Math.PI * i) / n - Math.PI / 2;
    return [middle + radius * Math.cos(turn), middle + radius * Math.sin(turn), turn];
  });
  const heard = new Set(graph.edges.filter(([, , state]) => !state).map(([to, from]) => `${to} ${from}`));
  const parts = [], drawn = new Set();
  for (const [to, from, state] of graph.edges) {
    const mutual = !state && heard.has(`${from} ${to}`);
    if (mutual && drawn.has(`${from} ${to}`)) continue;
    drawn.add(`${to} ${from}`);
    parts.push(...edge(place[from], place[to], r, state, mutual));
  }
  nodes.forEach((node, i) => {
    const [x, y, turn] = place[i], known = node.head !== null && node.head !== undefined;
    const here = graph.groups[node.group] !== "not here";
    const colour = here ? `node f${(known ? node.head : node.group) % COLOURS}` : "absent";
    const shape = named ? 0 : node.group;
    parts.push(svg("path", { class: colour, d: mark(shape, x, y, r) }, [svg("title", {}, [title(node, graph, named)])]));
    if (n <= 40) {
      const [lx, ly] = [x + (r + 9) * Math.cos(turn), y + (r + 9) * Math.sin(turn) + 4];
      const anchor = !named || Math.abs(Math.cos(turn)) < 0.3 ? "middle" : Math.cos(turn) > 0 ? "start" : "end";
      parts.push(svg("text", { class: "tick", x: lx, y: ly, "text-anchor": anchor }, [node.name]));
    }
  });
  const view = { viewBox: `0 0 ${size} ${size}`, width: size, role: "img", "aria-label": inWords(graph) };
  const picture = svg("svg", view, parts);
  picture.setAttribute("class", "circle");
  picture.style.maxWidth = `${size}px`;
  return html("div", "", picture, graphLegend(graph, named), asText(graph));
}

// A line from a sender to a receiver, straight but short of both; with a tip unless both hear each other.
function edge([x1, y1], [x2, y2], r, state, mutual) {
  const length = Math.hypot(x2 - x1, y2 - y1) || 1, ux = (x2 - x1) / length, uy = (y2 - y1) / length;
  const from = [x1 + ux * r, y1 + uy * r], to = [x2 - ux * (r + 2), y2 - uy * (r + 2)];
  const parts = [svg("path", { class: STATES[state], d: `M${point(from)}L${point(to)}` })];
  if (!mutual) {
    const back = [to[0] - 7 * ux, to[1] - 7 * uy], side = [-3 * uy, 3 * ux];
    const tip = `M${point(to)}L${point([back[0] + side[0], back[1] + side[1]])}L${point([back[0] - side[0], back[1] - side[1]])}Z`;
    parts.push(svg("path", { class: "tip", d: tip }));
  }
  return parts;
}

const point = ([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`;

function title(node, graph, named) {
  const head = node.head === null || node.head === undefined ? "" : `, head ${node.head}`;
  return named ? `${node.name}${head}` : `node ${node.name}, ${graph.groups[node.group]}${head}`;
}

function counts(graph) {
  return STATES.map((_, state) => graph.edges.filter((one) => one[2] === state).length);
}

function inWords(graph) {
  const said = counts(graph).map((count, state) => (count ? `${count} ${WORDS[state]}` : "")).filter(Boolean);
  return `Who hears whom among ${graph.nodes.length} nodes: ${said.join(", ") || "nothing yet"}`;
}

function graphLegend(graph, named) {
  const list = html("ul", "legend"), count = counts(graph);
  STATES.forEach((state, number) => {
    if (!count[number] && number) return;
    const line = svg("svg", { viewBox: "0 0 26 14", "aria-hidden": "true" }, [svg("path", { class: state, d: "M0 7H26" })]);
    list.append(html("li", "", line, html("span", "", WORDS[number]), html("b", "", count[number])));
  });
  if (!named && graph.groups.length > 1) {
    graph.groups.forEach((name, group) => {
      const shape = svg("svg", { viewBox: "0 0 26 14", "aria-hidden": "true" }, [svg("path", { class: "absent", d: mark(group, 13, 7, 4.5) })]);
      list.append(html("li", "", shape, html("span", "", name)));
    });
  }
  const heads = [...new Set(graph.nodes.map((node) => node.head))].filter((head) => head !== null && head !== undefined).sort((a, b) => a - b);
  const colours = heads.length ? colourLegend(heads.map((head) => [head, `head ${head}`, ""])) : "";
  return html("div", "", list, colours);
}

// The same for those who cannot see it, and for those who look for one node.
function asText(graph) {
  const box = html("details", "", html("summary", "", "as text")), list = html("ol", "heard");
  box.dataset.keep = "edges";
  graph.nodes.forEach((node, i) => {
    const said = WORDS.map((word, state) => {
      const others = graph.edges.filter(([to, , is]) => to === i && is === state).map(([, from]) => graph.nodes[from].name);
      return others.length ? `${word}: ${others.join(", ")}` : "";
    }).filter(Boolean);
    if (said.length) list.append(html("li", "", html("b", "", node.name), " ", said.join("; ")));
  });
  box.append(list);
  return box;
}

function betweenGroups(graph) {
  const table = html("table"), head = html("tr", "", html("th", "label name", "a node of"));
  for (const name of graph.groups) head.append(html("th", "", `from ${name}`));
  table.append(html("thead", "", head));
  const body = html("tbody");
  graph.between.forEach((row, i) => {
    const line = html("tr", "", html("td", "label name", `${graph.groups[i]} (${graph.sizes[i]})`));
    for (const count of row) line.append(html("td", "", count.toFixed(2)));
    body.append(line);
  });
  table.append(body);
  const total = graph.sizes.reduce((a, b) => a + b, 0).toLocaleString("en");
  const says = `${total} nodes are too many to draw one by one: messages that a node of a group heard in this round, the mean.`;
  return html("div", "", html("p", "note", says), html("div", "wide", table));
}
