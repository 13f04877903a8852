// SPDX-License-Identifier: Apache-2.0
// One tenant: its tree, its cells alone in colour, what can be done to it, its steps and history.
import { buttons } from "./acting.js";
import { actionsOf } from "./actions.js";
import { paintPanel } from "./colouring.js";
import { intoView, redraw } from "./drawing.js";
import { at, element, label, moment, save } from "./helpers.js";
import { login } from "./sign_in.js";
import { FIRST, focusTenant, given, map, panels, setFocus } from "./state.js";

let storyOf = ""; // of which tenant, and when it last changed, the story is shown

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
  tenantSection(number);
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

// The section of a tenant, also when a new map has come.
export function tenantSection(number) {
  const tenant = map.tenants[number];
  const svg = new DOMParser().parseFromString(tenant.drawing, "image/svg+xml").documentElement;
  at("tree").replaceChildren(document.importNode(svg, true));
  at("tree-title").textContent = `Tree of ${label(tenant)}`;
  at("save-tree").onclick = () => save(`${label(tenant)}.svg`, tenant.drawing);
  at("tree-section").hidden = false;
  at("tenant-acts").replaceChildren(...(given.acts ? buttons(actionsOf(tenant, map.everything)) : []));
  const version = `${tenant.id} ${tenant.updated_at}`;
  if (!given.acts || storyOf === version) return;
  storyOf = version;
  story(tenant).catch((error) => {
    storyOf = "";
    at("story").replaceChildren(element("p", {}, `No history: ${error.message}`));
  });
}

// What happens to it now, step by step, and what happened before.
async function story(tenant) {
  const answer = await login.ask(`v1/allocations/${encodeURIComponent(tenant.id)}`);
  if (!answer.ok) throw new Error(await login.refusal(answer));
  const known = await answer.json();
  if (focusTenant !== null && map.tenants[focusTenant].id !== tenant.id) return;
  at("story").replaceChildren(
    element("dl", { id: "steps" }, ...steps(known).flatMap(([name, text]) =>
      [element("dt", {}, name), element("dd", {}, text)])),
    element("h3", {}, "History"),
    element("ol", { id: "history", reversed: "" }, ...[...known.history].reverse().map((event) =>
      element("li", {}, `${moment(event.at)}: ${event.state}, ${event.reason}${spent(event.seconds)}`))));
}
function spent(seconds) {
  const parts = Object.entries(seconds || {}).filter(([, value]) => value >= 0.1);
  return parts.length ? ` (${parts.map(([name, value]) => `${name} ${value.toFixed(1)} s`).join(", ")})` : "";
}
function steps(known) {
  const facts = [["State", known.state]], { progress, announced, waits_for: waits } = known;
  const add = (name, text) => text && facts.push([name, String(text)]);
  add("Under way", known.changing);
  add("Joining", (known.joining || []).join(" "));
  add("Leaving", (known.leaving || []).join(" "));
  add("Next step", progress && progress.next_step);
  add("Tries that failed", progress && progress.failures);
  add("Next try", progress && progress.next_try && moment(progress.next_try));
  if (announced) add("Announced move", `begins ${moment(announced.begins)}: ${announced.joining.join(" ")} ` +
    `in place of ${announced.leaving.join(" ")}`);
  if (waits) add("Waits for", waits.detail);
  if (waits) add("Expected start", waits.expected_start && moment(waits.expected_start));
  add("Expected end", known.expected_end && moment(known.expected_end));
  add("Consent to moves", known.movable);
  add("Error", known.error);
  return facts;
}
