// SPDX-License-Identifier: Apache-2.0
// Colours of cells by owner, state and load; the legend.
import { redraw } from "./drawing.js";
import { at, css, drawn, element, hsl, label, rgb, style } from "./helpers.js";
import { numbersOfColours, paletteBeside } from "./palette.js";
import { FIRST, OTHERS, SHARES, WITHHELD, colours, focusTenant, map, panels, setColours } from "./state.js";

const known = {}; // by theme: numbers of colours by tenant, as long as the page is open
function tenantColours(states) {
  const theme_ = document.documentElement.dataset.theme, list = paletteBeside(states);
  known[theme_] = known[theme_] || new Map();
  const hosts = panels.find((panel) => panel.name === "hosts");
  const places = map.tenants.map(() => new Set());
  if (hosts) hosts.owner.forEach((owner, cell) => owner >= FIRST &&
    places[owner - FIRST].add(Math.floor(cell / hosts.columns / hosts.band)));
  const ids = map.tenants.map((tenant) => tenant.id);
  return numbersOfColours(ids, places, known[theme_], list.length).map((number) => list[number]);
}
function loadColour(percent) {
  const dark = document.documentElement.dataset.theme === "dark";
  return hsl(215 - 1.9 * Math.min(percent, 110), 65, dark ? 30 + percent / 4 : 82 - percent / 2.4);
}
export function paintPanels() {
  setColours({
    paper: rgb(style("--paper")), free: rgb(style("--free")), others: rgb(style("--others")),
    withheld: rgb(style("--withheld")), failed: rgb(style("--failed")),
    drained: rgb(style("--drained")), up: rgb(style("--up")), ink: rgb(style("--ink")),
    accent: style("--accent"), line: style("--line"), dim: style("--dim"),
  });
  colours.tenants = tenantColours(["paper", "free", "others", "withheld", "failed", "drained", "up"]
    .map((name) => colours[name]));
  for (const panel of panels) paintPanel(panel);
  legend();
  redraw();
}
export function paintPanel(panel) {
  const mode = at("colour").value, image = panel.image || document.createElement("canvas");
  panel.image = image;
  image.width = panel.columns;
  image.height = panel.rows;
  const inside = image.getContext("2d"), pixels = inside.createImageData(panel.columns, panel.rows);
  const packed = new Uint32Array(pixels.data.buffer), cache = new Map();
  const parts = panel[mode] || panel.load;
  for (let cell = 0; cell < packed.length; cell++) {
    const owner = panel.owner[cell], state = panel.state[cell], part = parts[cell];
    const key = owner * 65536 + state * 256 + part;
    let colour = cache.get(key);
    if (colour === undefined) {
      const [r, g, b] = cellColour(mode, owner, state, part);
      colour = ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
      cache.set(key, colour);
    }
    packed[cell] = colour;
  }
  inside.putImageData(pixels, 0, 0);
}
function cellColour(mode, owner, state, part) {
  if (state === 0) return colours.paper;
  if (SHARES[mode]) {
    if (owner === OTHERS && !map.everything) return colours.others;
    return part ? loadColour(part) : colours.free;
  }
  if (state === 3) return colours.failed;
  if (mode === "state") {
    if (owner === OTHERS && !map.everything) return colours.others;
    return state === 2 ? colours.drained : colours.up;
  }
  if (owner >= FIRST) {
    const own = colours.tenants[owner - FIRST];
    if (focusTenant === null || focusTenant === owner - FIRST) return own;
    return own.map((value, i) => Math.round(0.25 * value + 0.75 * colours.free[i]));
  }
  if (owner === OTHERS) return colours.others;
  if (owner === WITHHELD) return colours.withheld;
  return state === 2 ? colours.drained : colours.free;
}
function legend() {
  const mode = at("colour").value, entries = [];
  if (mode === "owner") {
    if (map.everything) entries.push(["free", colours.free], ["common plane", colours.withheld],
      ["drained and free", colours.drained]);
    else entries.push(["not yours", colours.others]);
    entries.push(["failed", colours.failed]);
    map.tenants.slice(0, 12).forEach((t, i) => entries.push([label(t), colours.tenants[i]]));
    if (map.tenants.length > 12) entries.push([`and ${map.tenants.length - 12} more tenants`, null]);
  } else if (mode === "state") {
    entries.push(["up", colours.up], ["drained", colours.drained], ["failed", colours.failed]);
    if (!map.everything) entries.push(["not yours", colours.others]);
  } else {
    const what = SHARES[mode];
    for (const part of [25, 50, 75, 100]) entries.push([`${part} % ${what}`, loadColour(part)]);
    entries.push([`nothing ${what}`, colours.free]);
    if (!map.everything) entries.push(["not yours", colours.others]);
  }
  at("legend").replaceChildren(...entries.map(([text, colour]) => element("li", {},
    colour ? drawn("svg", { viewBox: "0 0 1 1", "aria-hidden": "true" },
      drawn("rect", { width: 1, height: 1, fill: css(colour) })) : "", text)));
}
