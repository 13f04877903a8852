// SPDX-License-Identifier: Apache-2.0
// Would it fit, where, and what is in the way.
import { buttons } from "./acting.js";
import { room } from "./actions.js";
import { redraw } from "./drawing.js";
import { at, counted, element, label } from "./helpers.js";
import { given, map } from "./state.js";
import { showTenant } from "./tenant.js";

export function question() {
  const asked = map.question, box = at("question");
  at("ask").hidden = at("ask-slots").hidden = !given.source;
  if (!asked) {
    box.replaceChildren(element("p", {}, given.source
      ? "Ask whether a number of hosts, or of slots of shared hosts, fits, where it would lie, " +
        "and what is in the way."
      : "Nothing was asked when this page was made."));
    return;
  }
  const size = asked.slots ? `${asked.slots} slots` : `${asked.hosts} hosts`;
  const lines = [element("p", { class: asked.fits ? null : "bad", id: "verdict" }, asked.fits
    ? `${size} fit now${asked.shape ? ` as ${asked.shape}` : ""}.`
    : `${size} are refused: ${asked.detail} (${asked.reason}).`)];
  lines.push(element("p", {}, `The largest size that fits now is ${asked.largest_fit}.`));
  if (asked.crossed_more > 0) lines.push(element("p", {}, "Packets of " +
    `${counted(asked.crossed_more, "further pair", "further pairs")} of ports would cross owned links.`));
  if (asked.cells) lines.push(element("p", {}, asked.fits
    ? "It would lie in the outlined cells."
    : "With the changes below it would lie in the outlined cells."));
  if (asked.risks && asked.risks.length) lines.push(
    element("h3", {}, "Further tenants with these slots, by the risk of links"),
    element("ul", { id: "risks-answer" }, ...asked.risks.map((at_) => element("li", {},
      `risk ${at_.risk}: ${counted(at_.tenants, "tenant", "tenants")}${at_.more ? " or more" : ""}`))));
  const named = (ids) => ids.map((id) => {
    const number = map.tenantOf.get(id);
    return number === undefined ? element("li", {}, id) : element("li", {}, element("button",
      { type: "button", click: () => showTenant(number) }, label(map.tenants[number])));
  });
  if (asked.releases && asked.releases.length) lines.push(
    element("h3", {}, "In the way: release these"), element("ul", { id: "in-the-way" }, ...named(asked.releases)));
  if (asked.undrain && asked.undrain.length) lines.push(
    element("h3", {}, "Or use these drained hosts again"), element("p", {}, asked.undrain.join(" ")));
  if (asked.moves && asked.moves.length) lines.push(
    element("h3", {}, `Or move these (${counted(asked.moved_hosts, "host", "hosts")} to new places)`),
    element("ul", { id: "to-move" }, ...named(asked.moves)));
  if (given.acts && map.everything && !asked.fits && asked.hosts)
    lines.push(element("p", { class: "acts" }, ...buttons([room(map.fabric, asked.hosts)])));
  box.replaceChildren(...lines);
  redraw();
}
