// SPDX-License-Identifier: Apache-2.0
// Queue, reservations and use over time.
import { at, drawn, element, label, moment, spoken } from "./helpers.js";
import { table } from "./lists.js";
import { map } from "./state.js";

export function queueTable() {
  const queue = map.queue || [];
  table("queue", ["Place", "Name", "Hosts", "Expected start", "What it waits for"],
    queue.map((entry) => [entry.position, entry.name || entry.id, entry.requested,
      moment(entry.expected_start), entry.detail || "about to be admitted"]), "Nobody waits.");
  const ending = map.tenants.filter((tenant) => tenant.ends_at && tenant.created_at);
  const rows = [
    ...ending.map((t) => ["running", label(t), Date.parse(t.created_at), Date.parse(t.ends_at)]),
    ...queue.filter((q) => q.expected_start).map((q) => ["reserved", q.name || q.id,
      Date.parse(q.expected_start), Date.parse(q.expected_start) + 1000 * (q.duration || 3600)]),
  ].slice(0, 40);
  if (!rows.length) return at("timeline").replaceChildren();
  const from = Math.min(...rows.map((row) => row[2])), to = Math.max(...rows.map((row) => row[3]));
  const x = (time) => 130 + 460 * (time - from) / Math.max(1, to - from);
  const chart = drawn("svg", { class: "chart", viewBox: `0 0 600 ${rows.length * 18 + 24}`,
    role: "img", "aria-label": `Reservations over time: ${rows.map((row) =>
      `${row[1]} ${row[0]} from ${moment(row[2])} to ${moment(row[3])}`).join("; ")}` });
  rows.forEach(([kind, name, start, end], number) => chart.append(
    drawn("rect", { class: kind, x: x(start), y: number * 18 + 4, height: 11,
      width: Math.max(2, x(end) - x(start)) }),
    drawn("text", { x: 0, y: number * 18 + 13 }, name.slice(0, 20))));
  const low = rows.length * 18 + 18;
  chart.append(drawn("text", { x: 130, y: low }, moment(from)),
    drawn("text", { x: 590, y: low, "text-anchor": "end" }, moment(to)));
  at("timeline").replaceChildren(chart);
}
export function utilization() {
  const points = map.series || [], counts = map.counts;
  const box = at("use"), lines = [];
  for (const [name, key] of [["Hosts", "hosts"], ["Leaf links", "leaf_links"], ["Spine links", "spine_links"]]) {
    const use = counts && counts[key];
    if (use) lines.push(element("p", {}, `${name}: ${use.allocated} of ${use.total} with an owner, ` +
      `${use.free} free, ${use.failed} failed.`));
  }
  if (points.length > 1) {
    const most = Math.max(...points.map((p) => p[1]));
    const total = Math.max(1, counts && counts.hosts ? counts.hosts.total : most);
    const from = Date.parse(points[0][0]) || points[0][0];
    const end = points[points.length - 1][0], to = Date.parse(end) || end;
    const x = (t) => 40 + 550 * ((Date.parse(t) || t) - from) / Math.max(1, to - from);
    const y = (n) => 120 - 110 * n / total;
    let path = `M40 ${y(0)}`, last = 0;
    for (const [time, used] of points) {
      path += `L${x(time).toFixed(1)} ${y(last).toFixed(1)}L${x(time).toFixed(1)} ${y(used).toFixed(1)}`;
      last = used;
    }
    path += `L590 ${y(last).toFixed(1)}L590 ${y(0)}Z`;
    const what = map.everything ? "Hosts of all allocations" : "Hosts of your allocations";
    lines.push(element("h3", {}, `${what} over time, as requested`));
    lines.push(drawn("svg", { class: "chart", viewBox: "0 0 600 142", role: "img",
      "aria-label": `${what} over time, of ${total}: ${spoken(points)}` },
    drawn("path", { class: "used", d: path }),
    drawn("path", { class: "axis", d: "M40 10V120H590", fill: "none" }),
    drawn("text", { x: 0, y: 16 }, String(total)), drawn("text", { x: 0, y: 122 }, "0"),
    drawn("text", { x: 40, y: 136 }, moment(points[0][0])),
    drawn("text", { x: 590, y: 136, "text-anchor": "end" }, moment(end))));
  } else lines.push(element("p", {}, "No course over time was recorded."));
  box.replaceChildren(...lines);
}
