// SPDX-License-Identifier: Apache-2.0
// One tenant: its tree, and its cells alone in colour.
import { paintPanel } from "./colouring.js";
import { intoView, redraw } from "./drawing.js";
import { at, label, moment, save } from "./helpers.js";
import { FIRST, focusTenant, map, panels, setFocus } from "./state.js";

// whose routes, or keys, were confirmed when, and by whom
function confirmedText(tenant) {
  const parts = ["routes", "keys"].map((part) => {
    const shown = (tenant.confirmed || {})[part];
    return `${part} ${shown ? `confirmed at ${moment(shown.at)} (${shown.by})` : "not confirmed"}`;
  });
  return `Its ${parts.join(", its ")}.`;
}

export function showTenant(number) {
  setFocus(focusTenant === number ? null : number);
  const tenant = map.tenants[number];
  const svg = new DOMParser().parseFromString(tenant.drawing, "image/svg+xml").documentElement;
  at("tree").replaceChildren(document.importNode(svg, true));
  at("tree-title").textContent = `Tree of ${label(tenant)}`;
  at("save-tree").onclick = () => save(`${label(tenant)}.svg`, tenant.drawing);
  at("tree-section").hidden = false;
  at("found").textContent = focusTenant === null ? "All tenants are shown." :
    `${label(tenant)}: ${tenant.hosts} hosts, ${tenant.leaf_links} leaf links, ` +
    `${tenant.spine_links} spine links. ${confirmedText(tenant)}`;
  for (const panel of panels) paintPanel(panel);
  if (focusTenant !== null) {
    const hosts = panels.find((panel) => panel.name === "hosts");
    const cell = hosts ? hosts.owner.indexOf(number + FIRST) : -1;
    if (cell >= 0) intoView(hosts, cell);
  }
  redraw();
}
