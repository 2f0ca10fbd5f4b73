// Real sites: a table of them, and what their logs say.

import { html } from "./charts.js";
import { bytes, duration, value } from "./words.js";

const COLUMNS = [
  ["round", (row) => (row.here ? `${row.done} / ${row.rounds}` : "")],
  ["now", (row, measure) => (row.value === null || row.value === undefined ? "" : value(row.value, measure))],
  ["head", (row) => (row.head === null || row.head === undefined ? "" : row.head)],
  ["heard", (row) => row.heard],
  ["late", (row) => row.late],
  ["missed", (row) => row.missed],
  ["gone", (row) => row.gone],
  ["refused", (row) => row.refused],
  ["dropped", (row) => row.dropped],
  ["gate closed", (row) => row.closed],
  ["heard, bytes", (row) => (row.bytes === undefined ? "" : bytes(row.bytes))],
  ["left", (row) => (row.left ? duration(row.left) : "")],
];
const TROUBLE = new Set(["missed", "refused", "dropped", "gate closed"]);

export function siteTable({ sites, quality }) {
  const table = html("table"), body = html("tbody"), one = sites.rows.length === 1;
  const head = html("tr", "", html("th", "label name", "site"), html("th", "label", "state"), ...COLUMNS.map(([name]) => html("th", "", name)));
  for (const row of sites.rows) {
    const state = html("td", row.refusal || /^pauses/.test(row.state) ? "label says bad" : "label says", row.state);
    const missed = Object.entries(row.missed_of || {}).map(([id, count]) => `${id} ${count}x`).join(", ");
    if (missed) state.append(html("span", "note", ` · late or missed: ${missed}`));
    const cells = row.refusal ? [] : COLUMNS.map(([name, say]) => {
      const said = say(row, quality.measure);
      return html("td", TROUBLE.has(name) && Number(said) > 0 ? "bad" : "", said ?? "");
    });
    if (row.refusal) state.colSpan = COLUMNS.length + 1;
    body.append(html("tr", "", html("td", "label name", row.id), state, ...cells));
  }
  table.append(html("thead", "", head), body);
  const box = html("div", "wide", table);
  box.dataset.scroll = "sites";
  return one && Object.keys(sites.rows[0].peers).length ? html("div", "", box, peerTable(sites.rows[0].peers)) : box;
}

// Of one site: how it has met every other.
function peerTable(peers) {
  const body = html("tbody"), head = html("tr", "", html("th", "label name", "peer"), ...["heard", "late", "missed", "dropped"].map((name) => html("th", "", name)));
  for (const [id, met] of Object.entries(peers)) {
    const counts = [met.heard, met.late, met.missed, met.unused];
    body.append(html("tr", "", html("td", "label name", id), ...counts.map((count, i) => html("td", i > 1 && count ? "bad" : "", count ?? 0))));
  }
  const box = html("details", "", html("summary", "", "how it has met every peer"), html("div", "wide", html("table", "", html("thead", "", head), body)));
  box.dataset.keep = "peers";
  return box;
}

export function eventList(events) {
  const list = html("ol", "events");
  list.dataset.scroll = "events";
  list.tabIndex = 0;
  list.setAttribute("aria-label", "Events, newest first");
  for (const { at, site, says } of events.rows) {
    const time = html("time", "", new Date(1000 * at).toLocaleTimeString("en-GB"));
    time.dateTime = new Date(1000 * at).toISOString();
    list.append(html("li", "", time, html("b", "", site), html("span", "", says)));
  }
  return events.rows.length ? list : html("p", "note", "Nothing yet.");
}
