// SPDX-License-Identifier: Apache-2.0
// A cell in words, and choosing one.
import { buttons } from "./acting.js";
import { actionsOnPart } from "./actions.js";
import { intoView, placeOf, redraw } from "./drawing.js";
import { at, element, label, measuredText, portName, promisedText } from "./helpers.js";
import { FIRST, FREE, OTHERS, STATES, UNKNOWN_LOAD, WITHHELD, given, map, setChosen } from "./state.js";
import { showTenant } from "./tenant.js";

export function switchName(level, row) {
  const [name, guid] = map.switches[level][row] || ["", ""];
  return { name, guid };
}
export function describe(panel, cell) {
  const { row, column, pod, low } = placeOf(panel, cell), facts = [];
  const owner = panel.owner[cell], hidden = owner === OTHERS && !map.everything;
  const lowLevel = panel.name === "spine" ? "l2" : "leaf";
  const lower = switchName(lowLevel, row);
  const kind = panel.name === "spine" ? "L2 switch" : "leaf";
  if (panel.name === "hosts") {
    const number = map.hostOfCell.get(cell);
    facts.push(["Host", number === undefined ? `slot ${column}` : map.hosts[number][0]]);
    if (number !== undefined && map.hosts[number][2].length)
      facts.push(["Port GUIDs", map.hosts[number][2].join(" ")]);
  } else {
    facts.push(["Cable", `${panel.name}-${pod}-${low}-${column}`]);
  }
  facts.push(["Lower switch", [lower.name, `${kind} ${low} of pod ${pod}`].filter(Boolean).join(", ")]);
  if (lower.guid) facts.push(["Port", portName(lower, panel.lower && panel.lower[cell])]);
  if (panel.name !== "hosts") {
    const [level, upRow, text] = panel.name === "leaf"
      ? ["l2", pod * map.l2PerPod + Math.floor(column / map.tree.cables[0]), "L2 switch"]
      : ["spine", low * map.spinesPerGroup + Math.floor(column / map.tree.cables[1]), "spine"];
    const upper = switchName(level, upRow);
    const index = panel.name === "leaf" ? upRow % map.l2PerPod : upRow % map.spinesPerGroup;
    facts.push(["Upper switch", [upper.name, `${text} ${index}`].filter(Boolean).join(", ")]);
    if (upper.guid) facts.push(["Port", portName(upper, panel.upper && panel.upper[cell])]);
  }
  facts.push(["Owner", ownerName(owner)]);
  const several = map.shared[panel.name] && map.shared[panel.name][cell];
  if (several) facts.push(["Shared by", several.map((t) => (map.tenants[t] ? label(map.tenants[t]) : "another")).join(", ")]);
  if (!hidden) {
    facts.push(["State", STATES[panel.state[cell]]]);
    if (panel.load[cell] !== UNKNOWN_LOAD && panel.name !== "hosts")
      facts.push(["Reserved", `${panel.load[cell]} % of the bandwidth`]);
  }
  for (const one of panel.promises.get(cell) || [])
    facts.push([`Promised ${one.direction}`, `${promisedText(one)}; measured ${measuredText(one)}; ` +
      `probability of an outage at most ${one.outage}`]);
  return facts;
}
export function ownerName(owner) {
  if (owner >= FIRST) return label(map.tenants[owner - FIRST]);
  return { [FREE]: "free", [OTHERS]: map.everything ? "another allocation" : "not yours",
    [WITHHELD]: "withheld for shared traffic" }[owner] || "none";
}
export function choose(panel, cell, move = true) {
  setChosen({ panel, cell });
  const facts = describe(panel, cell), owner = panel.owner[cell];
  const list = element("dl", {}, ...facts.flatMap(([name, text]) => [
    element("dt", {}, name), element("dd", {}, String(text))]));
  at("cell").replaceChildren(list);
  if (owner >= FIRST) at("cell").append(element("p", {}, element("button", {
    type: "button", id: "show-owner", click: () => showTenant(owner - FIRST) },
  `Show ${label(map.tenants[owner - FIRST])}`)));
  if (given.acts && map.everything) at("cell").append(element("p", { class: "acts" }, ...partButtons(panel, cell)));
  if (move) intoView(panel, cell);
  redraw();
}
function partButtons(panel, cell) {
  const { row } = placeOf(panel, cell), state = STATES[panel.state[cell]];
  const owner = panel.owner[cell] >= FIRST ? ownerName(panel.owner[cell]) : "";
  const [, name] = describe(panel, cell)[0], number = map.hostOfCell.get(cell);
  const hosts = panel.name === "hosts", level = panel.name === "spine" ? "l2" : "leaf";
  const part = hosts && number === undefined ? []
    : buttons(actionsOnPart(map.fabric, hosts ? "host" : "link", name, state, owner));
  const above = switchName(level, row).name;
  const fault = (map.faults || []).find((one) => one.kind === "switch" && one.name === above);
  const kind = level === "leaf" ? "leaf" : "switch";
  return [...part, ...(above ? buttons(actionsOnPart(map.fabric, kind, above, fault ? fault.state : "",
    "each allocation there").map((one) => ({ ...one, text: `${one.text}: ${above}` }))) : [])];
}
