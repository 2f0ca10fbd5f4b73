// Keeps what the server has sent and draws it; asks again by itself when there is no answer.

import { headLegend, headShares, headStrip, colourLegend, html, legend, lineChart, reachOf } from "./charts.js";
import { graphPicture } from "./graph.js";
import { eventList, siteTable } from "./sites.js";
import { ago, bytes, duration, value } from "./words.js";

const SILENCE = 12000, RETRY = 1500;  // milliseconds without a word of the server, and between two looks at that
const SILENT = 20, SLOW = 8;  // seconds, and rounds, without a word of a run
const state = { order: [], subjects: {} };
let source = null, heard = 0, skew = 0, over = false, due = false;

const main = document.getElementById("main"), link = document.getElementById("link");

// The stream

function connect() {
  if (source) source.close();
  source = new EventSource("/events");
  source.addEventListener("state", (event) => { take(JSON.parse(event.data)); alive(); });
  source.addEventListener("beat", (event) => { skew = JSON.parse(event.data).now - Date.now() / 1000; alive(); });
  source.addEventListener("over", () => { over = true; tell(); });
  source.addEventListener("error", tell);
}

function alive() {
  heard = Date.now();
  over = false;
  tell();
}

function take(message) {
  if (message.whole) state.subjects = {};
  state.order = message.order;
  for (const [id, sections] of Object.entries(message.subjects)) {
    const kept = (state.subjects[id] = state.subjects[id] || {});
    for (const [name, section] of Object.entries(sections)) {
      if (section === null) delete kept[name];
      else kept[name] = section;
    }
    if (!Object.keys(kept).length) delete state.subjects[id];
  }
  drawSoon();
}

// How long the server has been silent; a connection that was closed for good is opened again.
function tell() {
  const silent = Date.now() - heard, lost = over || !source || source.readyState !== EventSource.OPEN || silent > SILENCE;
  let says = "live", kind = "live";
  if (!heard) [says, kind] = [lost && silent > 3000 ? "no answer yet; trying again" : "connecting", "waiting"];
  else if (lost) [says, kind] = [over ? `the watcher has stopped (last word ${ago(silent / 1000)})` : `no answer, last word ${ago(silent / 1000)}; trying again`, "lost"];
  if (link.textContent !== says) link.textContent = says;
  link.className = kind;
  document.body.classList.toggle("lost", kind === "lost");
}

setInterval(() => {
  const silent = Date.now() - heard;
  if (source.readyState === EventSource.CLOSED || (heard && silent > SILENCE + RETRY && source.readyState === EventSource.OPEN)) connect();
  tell();
  for (const place of document.querySelectorAll("[data-pace]")) place.textContent = pace(JSON.parse(place.dataset.pace));
}, RETRY);

// Drawing

function drawSoon() {
  if (due) return;
  due = true;
  requestAnimationFrame(() => { due = false; draw(); });
}

function draw() {
  const ids = state.order.filter((id) => state.subjects[id] && state.subjects[id].about);
  const chosen = ids.length === 1 ? ids[0] : decodeURIComponent(location.hash.slice(1));
  const one = ids.includes(chosen) ? chosen : null;
  document.getElementById("back").hidden = !one || ids.length === 1;
  const titled = one ? state.subjects[one].about.title : ids.length ? `${ids.length} runs` : "nothing yet";
  document.getElementById("title").textContent = `Facade: watching ${titled}`;
  document.title = one ? `${percentDone(state.subjects[one].progress)}${titled}` : `Facade: watching ${titled}`;
  const opened = new Set([...main.querySelectorAll("details[open]")].map((box) => box.dataset.keep));
  const scrolled = new Map([...main.querySelectorAll("[data-scroll]")].map((box) => [box.dataset.scroll, [box.scrollLeft, box.scrollTop]]));
  const content = one ? whole(state.subjects[one]) : several(ids);
  main.replaceChildren(...content);
  for (const box of main.querySelectorAll("details")) box.open = opened.has(box.dataset.keep);
  for (const box of main.querySelectorAll("[data-scroll]")) [box.scrollLeft, box.scrollTop] = scrolled.get(box.dataset.scroll) || [0, 0];
  main.setAttribute("aria-busy", "false");
  document.documentElement.dataset.drawn = String(Number(document.documentElement.dataset.drawn || 0) + 1);
}

const percentDone = (progress) => (progress.rounds ? `${Math.floor((100 * progress.done) / progress.rounds)} % ` : "");

// Several runs: a table of all, and a card for each
function several(ids) {
  if (!ids.length) return [html("p", "note", "No run has begun here yet; this page shows it when it does.")];
  const all = ids.map((id) => [id, state.subjects[id]]);
  const cards = html("div", "several");
  const measured = all.filter(([, subject]) => subject.quality && subject.quality.lines.length).map(([, subject]) => subject.quality);
  const alike = new Set(measured.map((quality) => quality.measure.word)).size === 1;
  for (const [id, subject] of all) cards.append(card(id, subject, alike ? reachOf(measured, scaleOf(measured[0])) : null));
  return [overview(all), cards];
}

const scaleOf = (quality) => (quality.measure.percent ? 100 : 1);

function overview(all) {
  const table = html("table"), body = html("tbody");
  const head = html("tr", "", ...["what", "state", "round", "mean", "worst", "MB heard", "left"].map((word, i) => html("th", i < 2 ? "label" + (i ? "" : " name") : "", word)));
  for (const [id, { about, progress, quality, traffic }] of all) {
    const name = html("a", "", about.title);
    name.href = `#${encodeURIComponent(id)}`;
    const worst = quality && quality.worst !== undefined ? value(quality.worst, quality.measure) : "";
    const mean = quality && quality.mean !== undefined ? value(quality.mean, quality.measure) : "";
    body.append(html("tr", "",
      html("td", "label name", name), html("td", "label", progress.says || progress.phase),
      html("td", "", progress.rounds ? `${progress.done} / ${progress.rounds}` : ""), html("td", "", mean), html("td", "", worst),
      html("td", "", traffic ? (traffic.total / 1e6).toFixed(1) : ""), html("td", "", progress.left ? duration(progress.left) : "")));
  }
  table.append(html("thead", "", head), body);
  const box = html("div", "wide overview", table);
  box.dataset.scroll = "overview";
  return box;
}

function card(id, subject, reach) {
  const name = html("a", "", subject.about.title);
  name.href = `#${encodeURIComponent(id)}`;
  const box = html("section", "card", html("h2", "", name), advance(subject.progress));
  const width = Math.min(600, cardWidth()), quality = subject.quality;
  if (quality && quality.lines.length) {
    box.append(lineChart(width, quality.lines, { rounds: shownRounds(subject.progress), scale: scaleOf(quality), label: saidOf(quality), reach, height: 150 }));
    box.append(legend(quality.lines, (line) => nowOf(line, quality.measure)));
  }
  if (subject.heads && subject.heads.columns) box.append(headStrip(width, subject.heads, { rounds: shownRounds(subject.progress), compact: true }), headLegend(subject.heads));
  return box;
}

function cardWidth() {
  const room = main.clientWidth || 360, columns = Math.max(1, Math.floor((room + 16) / 386));
  return (room - 16 * (columns - 1)) / columns - 31;
}

// One run or network, with all that is known of it
function whole(subject) {
  const { about, progress } = subject, network = about.kind === "network";
  const parts = [facts(about), advance(progress), tiles(subject)];
  for (const note of about.notes || []) parts.push(html("p", "note", note));
  const panels = html("div", "panels"), room = main.clientWidth || 360;
  const width = room >= 886 ? (room - 26) / 2 : room;
  const add = (id, kind, title, ...content) => {
    const figure = html("figure", kind, html("h3", "", title), ...content.filter(Boolean));
    figure.id = id;
    panels.append(figure);
  };
  if (subject.sites) add("sites", "wide-panel", network && subject.sites.rows.length > 1 ? "Sites" : "This site", siteTable(subject));
  qualityPanels(subject, width, add);
  headPanels(subject, width, add);
  graphPanel(subject, width, network, add);
  guardPanel(subject, width, add);
  if (subject.events) add("events", "", "What the logs say, newest first", eventList(subject.events));
  parts.push(panels);
  return parts;
}

// How far the axes reach: to the end, unless the run has just begun and its lines would be a few pixels wide.
const shownRounds = ({ done, rounds }) => Math.min(rounds, Math.max(30, Math.ceil(1.5 * done)));

function facts(about) {
  const box = html("p", "facts");
  for (const [name, said] of about.facts) box.append(html("span", "", `${name} `, html("b", "", said)));
  return box;
}

function advance(progress) {
  const box = html("div", "advance"), bar = html("progress");
  bar.max = Math.max(1, progress.rounds);
  bar.value = progress.done;
  bar.setAttribute("aria-label", `round ${progress.done} of ${progress.rounds}`);
  const line = html("p", progress.says.startsWith("pauses") ? "trouble" : "", pace(progress));
  line.dataset.pace = JSON.stringify(progress);
  box.append(bar, line);
  return box;
}

// Where a run is, and when it will be over if it goes on as it has
function pace(progress) {
  const words = [], age = progress.written ? Date.now() / 1000 + skew - progress.written : null;
  if (progress.rounds) words.push(`round ${progress.done} of ${progress.rounds}`);
  if (progress.says) words.push(progress.says);
  if (progress.phase === "running") {
    if (progress.seconds) words.push(`${duration(progress.seconds)} a round`);
    const silent = age !== null && age > Math.max(SILENT, SLOW * (progress.seconds || 0));
    if (silent) words.push("nothing is written any more: it has stopped, or something is slow");
    else if (progress.left) words.push(`about ${duration(Math.max(0, progress.left - Math.max(0, age || 0)))} left`);
  }
  if (age !== null && (progress.phase !== "running" || age > 5)) words.push(`last written ${ago(age)}`);
  return words.join(" · ");
}

function tiles({ quality, traffic, losses, progress, sites }) {
  const box = html("div", "tiles"), add = (name, said) => box.append(html("div", "tile", html("b", "", said), name));
  if (quality && quality.worst !== undefined) {
    const { word } = quality.measure, which = quality.final ? "final models" : "now";
    if (!quality.of_sites) for (const line of quality.lines) add(`${word} of ${line.name}`, nowOf(line, quality.measure));
    const alone = quality.lines.length === 1 && quality.of_sites && quality.lines[0].name !== "mean of all sites";
    add(alone ? `${word}, ${which}` : `mean ${word}, ${which}`, value(quality.mean, quality.measure));
    if (!alone) add(quality.of_sites ? "worst site" : "worst node", value(quality.worst, quality.measure));
  }
  if (losses && losses.lines.length) {
    const last = losses.lines.map((line) => line.values[line.values.length - 1]).filter((one) => one !== null && one !== undefined);
    if (last.length) add("mean training loss", (last.reduce((a, b) => a + b, 0) / last.length).toFixed(3));
  }
  if (traffic && traffic.total) add(`heard per ${sites ? "site" : "node"}${traffic.final ? `, and ${bytes(traffic.final)} at the end` : ""}`, bytes(traffic.total));
  if (traffic && traffic.last && progress.phase === "running") add("a node and round", bytes(traffic.last));
  return box;
}

function nowOf(line, measure) {
  const known = line.values.filter((one) => one !== null && one !== undefined);
  const now = line.final !== null && line.final !== undefined ? line.final : known[known.length - 1];
  return now === undefined ? "" : value(now, measure);
}

const saidOf = (quality) => `${quality.measure.word}: ${quality.lines.map((line) => `${line.name} ${nowOf(line, quality.measure)}`).join(", ")}`;
const capital = (words) => words[0].toUpperCase() + words.slice(1);

function qualityPanels({ quality, losses, progress }, width, add) {
  if (quality && quality.lines.length && quality.worst !== undefined) {
    const { measure } = quality, ends = quality.lines.some((line) => line.final !== null && line.final !== undefined);
    const says = `${measure.percent ? "In percent. " : ""}${measure.lower_is_better ? "Lower is better. " : ""}${ends ? "The large mark is the model after the final exchange." : ""}`;
    add("quality", "", `${capital(measure.word)} over rounds`, html("figcaption", "", says),
      lineChart(width, quality.lines, { rounds: shownRounds(progress), scale: scaleOf(quality), label: saidOf(quality) }),
      legend(quality.lines, (line) => nowOf(line, measure)), quality.nodes && everyNode(quality));
  }
  if (losses && losses.lines.length) {
    const last = (line) => line.values[line.values.length - 1];
    add("losses", "", "Training loss over rounds", html("figcaption", "", "Mean over nodes, on what they train on."),
      lineChart(width, losses.lines, { rounds: shownRounds(progress), label: "training loss over rounds" }),
      legend(losses.lines, (line) => (last(line) === null || last(line) === undefined ? "" : last(line).toFixed(3))));
  }
}

function everyNode(quality) {
  const box = html("details", "", html("summary", "", `every ${quality.of_sites ? "site" : "node"}`)), list = html("ol", "heard");
  box.dataset.keep = "nodes";
  for (const node of quality.nodes) list.append(html("li", "", html("b", "", node.name), ` ${node.value === null ? "not known" : value(node.value, quality.measure)}`));
  box.append(list);
  return box;
}

function headPanels({ heads, progress, about }, width, add) {
  if (!heads) return;
  if (heads.columns) {
    const who = about.kind === "network" ? "site" : "node";
    const says = `A row for each ${who}, the number at its end is the head it has now.${heads.span > 1 ? ` A column stands for ${heads.span} rounds.` : ""}`;
    add("heads", "", "Who chose which head", html("figcaption", "", says), headStrip(width, heads, { rounds: shownRounds(progress) }), headLegend(heads));
    return;
  }
  const count = Math.max(...heads.shares.map((group) => group.values.length));
  const pictures = heads.shares.flatMap((group) => [html("figcaption", "", group.name), headShares(width, group, { rounds: shownRounds(progress) })]);
  add("heads", "", "Who chose which head", ...pictures, colourLegend(Array.from({ length: count }, (_, head) => [head, `head ${head}`, ""])));
}

function graphPanel({ graph }, width, network, add) {
  if (!graph) return;
  if (graph.why_not) {
    add("graph", "", "Who hears whom", html("p", "note", graph.why_not));
    return;
  }
  const when = graph.first && graph.first !== graph.round ? `rounds ${graph.first} to ${graph.round}, each site in its own` : `round ${graph.round}`;
  const says = `${graph.messages.toLocaleString("en")} messages, ${when}.`;
  add("graph", "", "Who hears whom", html("figcaption", "", says), graphPicture(width, graph, network));
}

function guardPanel({ guard, progress }, width, add) {
  if (!guard) return;
  const most = guard.most.map((one) => `${one.name} (${one.count})`).join(", ");
  const says = [
    `Rule "${guard.rule}".`, guard.last !== undefined ? `${guard.last} messages dropped in the last round, in part or whole.` : "",
    most ? `Most often dropped: ${most}.` : "Nothing has been dropped.", `Closings of the last gate: ${guard.closed}.`,
  ];
  const moved = guard.lines && guard.lines.some((line) => line.values.some((one) => one));
  add("guard", "", "What the guard drops", html("p", "note", says.filter(Boolean).join(" ")),
    moved && lineChart(width, guard.lines, { rounds: shownRounds(progress), label: "messages dropped a round, by sender", height: 150 }),
    moved && legend(guard.lines, (line) => `${line.values[line.values.length - 1]} a round`));
}

addEventListener("hashchange", () => { scrollTo(0, 0); drawSoon(); });
addEventListener("resize", drawSoon);
if (location.search) history.replaceState(null, "", location.pathname + location.hash);  // the cookie has the token
connect();
