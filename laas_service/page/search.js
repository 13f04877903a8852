// SPDX-License-Identifier: Apache-2.0
// Finds tenants, hosts, switches, ports and cables by what they are called.
import { choose, describe } from "./cells.js";
import { at, counted } from "./helpers.js";
import { hostTable, tenantTable } from "./lists.js";
import { cable } from "./model.js";
import { focusTenant, map, panels } from "./state.js";
import { showTenant } from "./tenant.js";

export function find(text, move = true) {
  const wanted = text.trim().toLowerCase(), status = at("found");
  if (!wanted) {
    tenantTable(map.tenants.map((_, number) => number));
    hostTable(map.hosts.map((_, number) => number));
    if (move) status.textContent = "";
    return;
  }
  const has = (...values) => values.some((value) => String(value || "").toLowerCase().includes(wanted));
  const tenants = [], hosts = [];
  map.tenants.forEach((t, number) => has(t.id, t.name, t.project) && tenants.push(number));
  map.hosts.forEach((host, number) => has(host[0], ...host[2]) && hosts.push(number));
  tenantTable(tenants);
  hostTable(hosts);
  if (!move) return;
  const link = /^(leaf|spine)-(\d+)-(\d+)-(\d+)$/.exec(wanted);
  const hit = (link && cable(link)) || port(wanted) || exact(wanted, hosts) || switchRow(wanted);
  if (hit) choose(hit[0], hit[1]);
  else if (tenants.length === 1 && !hosts.length && focusTenant !== tenants[0]) showTenant(tenants[0]);
  else if (hosts.length) choose(panels[0], map.hosts[hosts[0]][1][0]);
  const kinds = [counted(tenants.length, "tenant", "tenants"), counted(hosts.length, "host", "hosts")];
  if (hit) kinds.push(describe(hit[0], hit[1]).slice(0, 2).map((fact) => fact.join(" ")).join(", "));
  status.textContent = tenants.length || hosts.length || hit ? `Found: ${kinds.join(", ")}.`
    : "Nothing of that name here.";
}
function exact(wanted, hosts) {
  const number = hosts.find((one) => map.hosts[one][0].toLowerCase() === wanted
    || map.hosts[one][2].includes(wanted));
  return number === undefined ? null : [panels[0], map.hosts[number][1][0]];
}
function switchRow(wanted) {
  for (const [level, name] of [["leaf", "hosts"], ["l2", "spine"], ["l2", "leaf"]]) {
    const row = map.switches[level].findIndex((one) => one[0].toLowerCase() === wanted || one[1] === wanted);
    const panel = panels.find((one) => one.name === name);
    if (row >= 0 && panel && row < panel.rows && (level !== "l2" || name === "spine"))
      return [panel, row * panel.columns];
  }
  return null;
}
function port(wanted) {
  const [, named, number] = /^(.+)\/(\d+)$/.exec(wanted) || [];
  if (!named) return null;
  for (const panel of panels.filter((one) => one.lower)) {
    for (let cell = 0; cell < panel.lower.length; cell++) {
      const facts = panel.lower[cell] === Number(number) || panel.upper[cell] === Number(number);
      if (facts && describe(panel, cell).some(([name, text]) => name === "Port" &&
        (text.startsWith(`${named}/${number} `) || text.toLowerCase().includes(`(${named}/${number})`))))
        return [panel, cell];
    }
  }
  return null;
}
