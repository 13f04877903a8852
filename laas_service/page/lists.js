// SPDX-License-Identifier: Apache-2.0
// Tables of tenants, hosts and promises.
import { choose, describe, ownerName, switchName } from "./cells.js";
import { at, element, label, measuredText, promisedText, stateText } from "./helpers.js";
import { MOST_ROWS, STATES, map, panels } from "./state.js";
import { showTenant } from "./tenant.js";

export function table(id, columns, rows, none) {
  const head = element("thead", {}, element("tr", {},
    ...columns.map((column) => element("th", { scope: "col" }, column))));
  const body = rows.length ? rows.map((row) => element("tr", {},
    ...row.map((value) => element("td", {}, value instanceof Node ? value : String(value ?? "-")))))
    : [element("tr", {}, element("td", { colspan: columns.length }, none))];
  at(id).replaceChildren(head, element("tbody", {}, ...body));
}
export function tenantTable(numbers) {
  table("tenants", ["Name", "State", "Hosts", "Links", "Shape"],
    numbers.slice(0, MOST_ROWS).map((number) => {
      const tenant = map.tenants[number];
      return [element("button", { type: "button", "data-tenant": label(tenant), click: () => showTenant(number) },
        label(tenant)),
        stateText(tenant), tenant.hosts, tenant.leaf_links + tenant.spine_links, tenant.shape];
    }), "No tenant.");
  at("more-tenants").textContent = numbers.length > MOST_ROWS
    ? `The first ${MOST_ROWS} of ${numbers.length}; search for others.` : "";
}
export function promiseTable() {
  const rows = panels.flatMap((panel) => [...panel.promises].flatMap(([cell, both]) =>
    both.map((one) => ({ panel, cell, one }))));
  rows.sort((a, b) => b.one.promised / b.one.bandwidth - a.one.promised / a.one.bandwidth);
  at("promises-section").hidden = !rows.length;
  table("promises", ["Link", "Direction", "Promised", "Measured", "Outage at most"],
    rows.slice(0, MOST_ROWS).map(({ panel, cell, one }) => [
      element("button", { type: "button", click: () => choose(panel, cell) },
        describe(panel, cell)[0].join(" ")),
      one.direction, promisedText(one), measuredText(one), one.outage]), "No link promises anything.");
  at("more-promises").textContent = rows.length > MOST_ROWS
    ? `The ${MOST_ROWS} with the highest share of ${rows.length}.` : "";
}
export function hostTable(numbers) {
  const hosts = panels.find((panel) => panel.name === "hosts");
  table("hosts", ["Host", "State", "Owner", "Leaf"], numbers.slice(0, MOST_ROWS).map((number) => {
    const [name, cells] = map.hosts[number], cell = cells[0];
    const row = Math.floor(cell / hosts.columns), leaf = switchName("leaf", row).name;
    return [element("button", { type: "button", click: () => choose(hosts, cell) }, name),
      STATES[hosts.state[cell]], ownerName(hosts.owner[cell]),
      leaf || `${row % hosts.band} of pod ${Math.floor(row / hosts.band)}`];
  }), map.everything ? "No host." : "No host of yours.");
  at("more-hosts").textContent = numbers.length > MOST_ROWS
    ? `The first ${MOST_ROWS} of ${numbers.length}; search for others.` : "";
}
