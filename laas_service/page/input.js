// SPDX-License-Identifier: Apache-2.0
// Mouse, fingers and keys on the matrices.
import { choose, describe } from "./cells.js";
import { paintPanels } from "./colouring.js";
import { canvas, redraw, under, whole, zoom } from "./drawing.js";
import { at } from "./helpers.js";
import { find } from "./search.js";
import { FIRST, chosen, map, panels, view } from "./state.js";
import { showTenant } from "./tenant.js";

const fingers = new Map();
let moved = 0;
canvas.addEventListener("pointerdown", (event) => {
  canvas.setPointerCapture(event.pointerId);
  fingers.set(event.pointerId, [event.clientX, event.clientY]);
  moved = 0;
});
canvas.addEventListener("pointermove", (event) => {
  const last = fingers.get(event.pointerId);
  if (!map) return;
  if (!last) {
    const hit = under(event); // the tooltip of a cell
    const facts = hit ? describe(hit[0], hit[1]) : [];
    canvas.title = facts.map((fact) => fact.join(": ")).join("\n");
    return;
  }
  const ratio = window.devicePixelRatio || 1, dx = event.clientX - last[0], dy = event.clientY - last[1];
  if (fingers.size === 2) {
    const [other] = [...fingers].filter(([id]) => id !== event.pointerId).map(([, place_]) => place_);
    const before = Math.hypot(last[0] - other[0], last[1] - other[1]);
    const now = Math.hypot(event.clientX - other[0], event.clientY - other[1]);
    if (before > 0) zoom(now / before);
    moved = 99;
  } else {
    view.x += dx * ratio;
    view.y += dy * ratio;
    moved += Math.abs(dx) + Math.abs(dy);
  }
  fingers.set(event.pointerId, [event.clientX, event.clientY]);
  redraw();
});
canvas.addEventListener("pointerup", (event) => {
  fingers.delete(event.pointerId);
  const hit = map && moved < 5 ? under(event) : null;
  if (hit) choose(hit[0], hit[1], false);
});
canvas.addEventListener("pointercancel", (event) => fingers.delete(event.pointerId));
canvas.addEventListener("wheel", (event) => {
  if (!map) return;
  event.preventDefault();
  const box = canvas.getBoundingClientRect(), ratio = canvas.width / box.width;
  if (event.ctrlKey) {
    zoom(Math.exp(-event.deltaY / 300), (event.clientX - box.left) * ratio, (event.clientY - box.top) * ratio);
    return;
  }
  view.x -= event.deltaX * ratio;
  view.y -= event.deltaY * ratio;
  redraw();
}, { passive: false });
canvas.addEventListener("keydown", (event) => {
  if (!map || event.ctrlKey || event.altKey || event.metaKey) return;
  const { panel, cell } = chosen || { panel: panels[0], cell: -1 };
  const row = Math.floor(cell / panel.columns), column = cell % panel.columns;
  const to = (r, c) => choose(panel, Math.min(panel.rows - 1, Math.max(0, r)) * panel.columns
    + Math.min(panel.columns - 1, Math.max(0, c)));
  const other = (step) => choose(panels[(panels.indexOf(panel) + step + panels.length) % panels.length], 0);
  const acts = {
    ArrowUp: () => to(row - 1, column), ArrowDown: () => to(row + 1, column),
    ArrowLeft: () => to(row, column - 1), ArrowRight: () => to(row, column + 1),
    Home: () => to(row, 0), End: () => to(row, panel.columns - 1),
    PageDown: () => other(1), PageUp: () => other(-1), "+": () => zoom(1.3), "-": () => zoom(1 / 1.3),
    Enter: () => chosen && panel.owner[cell] >= FIRST && showTenant(panel.owner[cell] - FIRST),
  };
  if (!acts[event.key]) return;
  event.preventDefault();
  if (cell < 0 && event.key.startsWith("Arrow")) choose(panel, 0);
  else acts[event.key]();
});
at("larger").addEventListener("click", () => zoom(1.4));
at("smaller").addEventListener("click", () => zoom(1 / 1.4));
at("fit").addEventListener("click", whole);
at("colour").addEventListener("change", paintPanels);
at("search").addEventListener("change", () => find(at("search").value));
at("tools").addEventListener("submit", (event) => {
  event.preventDefault();
  find(at("search").value);
});
