// SPDX-License-Identifier: Apache-2.0
// The summary, what needs a person, and faults.
import { buttons } from "./acting.js";
import { acknowledgement, actionsOf, actionsOnPart } from "./actions.js";
import { needsAPerson } from "./attention.js";
import { queueTable, utilization } from "./charts.js";
import { canvas } from "./drawing.js";
import { at, counted, element, moment } from "./helpers.js";
import { hostTable, promiseTable, table, tenantTable } from "./lists.js";
import { question } from "./question.js";
import { find } from "./search.js";
import { MOST_ROWS, TITLES, focusTenant, given, map, observation, panels } from "./state.js";
import { showTenant, tenantSection } from "./tenant.js";

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
  table("faults", ["What", "State", "Said by", "Since", "Reason and evidence"],
    (map.faults || []).slice(0, MOST_ROWS).map((fault) => [place(fault), fault.state, fault.source,
      moment(fault.since),
      [fault.reason, fault.evidence].filter(Boolean).join("; ")]), "Nothing is failed, drained or being repaired.");
  question();
  utilization();
  attention();
  at("new-section").hidden = !given.acts;
  if (focusTenant === null) at("tree-section").hidden = true;
  else tenantSection(focusTenant);
}
export function attention() {
  const entries = [...alarms(), ...needsAPerson(map, Date.now())];
  at("attention").hidden = !entries.length;
  table("needs", ["What", "State", "Since", "Why", "Next step"], entries.slice(0, MOST_ROWS).map((one) => [
    one.level === "alarm" ? one.what : one.tenant === undefined || one.tenant < 0 ? place(one.fault || { kind: "", name: one.what })
      : element("button", { type: "button", click: () => showTenant(one.tenant) }, one.what),
    element("span", { class: one.level === "waiting" ? "warn" : "bad" }, one.level),
    moment(one.since), one.why, element("span", { class: "acts" }, one.next, ...nextButtons(one))]), "");
  at("needs-title").textContent = `Needs a person: ${entries.length}`;
}
// The alarm of observation, which holds records back until somebody looks.
function alarms() {
  const alarm = observation && observation.alarm;
  return alarm ? [{ level: "alarm", what: "observation", since: alarm.since, why: alarm.text,
    next: `look at the fabric, then: laas observation acknowledge`, act: [acknowledgement(map.fabric)] }] : [];
}
// Buttons for the next step of what needs a person.
function nextButtons(entry) {
  if (!given.acts) return [];
  if (entry.act) return buttons(entry.act);
  if (entry.fault) return map.everything ? buttons(actionsOnPart(map.fabric, entry.fault.kind,
    entry.fault.name, entry.fault.state).filter((one) => one.id === "up")) : [];
  const tenant = map.tenants[entry.tenant], wanted = ["retry", "repair", "replace"];
  return tenant ? buttons(actionsOf(tenant, map.everything).filter((one) => wanted.includes(one.id))) : [];
}
function place(fault) {
  const text = `${fault.kind} ${fault.name}`.trim();
  return element("button", { type: "button", click: () => find(fault.name) }, text);
}
