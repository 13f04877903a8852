// SPDX-License-Identifier: Apache-2.0
// The summary, what needs a person, and faults.
import { needsAPerson } from "./attention.js";
import { queueTable, utilization } from "./charts.js";
import { canvas } from "./drawing.js";
import { at, counted, element, moment } from "./helpers.js";
import { hostTable, promiseTable, table, tenantTable } from "./lists.js";
import { question } from "./question.js";
import { find } from "./search.js";
import { MOST_ROWS, TITLES, focusTenant, map, panels } from "./state.js";
import { showTenant } from "./tenant.js";

export function texts() {
  const { m, w, rails } = map.tree, counts = map.counts, tenants = map.tenants.length;
  const parts = [`XGFT(3; ${m.join(",")}; ${w.join(",")})${rails > 1 ? `, ${rails} rails` : ""}`];
  if (map.generation) parts.push(`generation ${map.generation}`);
  if (counts && counts.hosts) parts.push(`${counts.hosts.total} hosts: ${counts.hosts.allocated} with an owner, ` +
    `${counts.hosts.free} free, ${counts.hosts.failed} failed, ${counts.hosts.drained} drained`);
  parts.push(map.everything ? counted(tenants, "tenant", "tenants")
    : `${counted(tenants, "allocation", "allocations")} of your project; all else is grey`);
  if (map.at) parts.push(`as of ${moment(map.at)}`);
  at("summary").textContent = parts.join(" - ");
  canvas.setAttribute("aria-label", `Cables by level of ${map.fabric}: ` +
    panels.map((p) => `${TITLES[p.name]}, ${p.rows} by ${p.columns}`).join("; "));
  tenantTable(map.tenants.map((_, number) => number));
  hostTable(map.hosts.map((_, number) => number));
  promiseTable();
  queueTable();
  table("faults", ["What", "State", "Said by", "Since", "Evidence"],
    (map.faults || []).slice(0, MOST_ROWS).map((fault) => [place(fault), fault.state, fault.source,
      moment(fault.since), fault.evidence]), "Nothing is failed, drained or being repaired.");
  question();
  utilization();
  attention();
  if (focusTenant === null) at("tree-section").hidden = true;
}
function attention() {
  const entries = needsAPerson(map, Date.now());
  at("attention").hidden = !entries.length;
  table("needs", ["What", "State", "Since", "Why", "Next step"], entries.slice(0, MOST_ROWS).map((one) => [
    one.tenant === undefined || one.tenant < 0 ? place(one.fault || { kind: "", name: one.what })
      : element("button", { type: "button", click: () => showTenant(one.tenant) }, one.what),
    element("span", { class: one.level === "waiting" ? "warn" : "bad" }, one.level),
    moment(one.since), one.why, one.next]), "");
  at("needs-title").textContent = `Needs a person: ${entries.length}`;
}
function place(fault) {
  const text = `${fault.kind} ${fault.name}`.trim();
  return element("button", { type: "button", click: () => find(fault.name) }, text);
}
