// SPDX-License-Identifier: Apache-2.0
// Draws the matrices: the work of a frame does not grow with the fabric.
import { room } from "./actions.js";
import { at, css } from "./helpers.js";
import { GAP, TITLES, chosen, colours, map, panels, proposal, setView, view } from "./state.js";

export const canvas = at("cells");
const pen = canvas.getContext("2d", { alpha: false });
const LARGEST = 40; // pixels of a cell when the whole fabric is shown
let queued = false;

function size() {
  const box = canvas.getBoundingClientRect(), ratio = window.devicePixelRatio || 1;
  const width = Math.max(1, Math.round(box.width * ratio));
  const height = Math.max(1, Math.round(box.height * ratio));
  if (canvas.width !== width || canvas.height !== height) {
    canvas.width = width;
    canvas.height = height;
  }
  return ratio;
}
export function whole() {
  // pods stand below each other, in as many columns as lets the cells be largest
  const frame_ = at("frame");
  frame_.style.height = "";
  const ratio = size(), wide = canvas.width, high = canvas.height - 40 * ratio;
  let best = 0;
  for (let rows = 1; rows <= map.pods; rows++) {
    const columns = Math.ceil(map.pods / rows);
    const scale = Math.min(wide / (columns * map.podWidth), high / (rows * map.podHeight));
    if (scale > best * 1.02) [best, map.podsBelow] = [scale, rows];
  }
  const scale = Math.max(2 * ratio, Math.min(best, LARGEST * ratio));
  // a small fabric leaves no empty part of the page
  frame_.style.height = `min(72vh, ${Math.ceil((map.podsBelow * map.podHeight * scale) / ratio + 46)}px)`;
  size();
  setView({ scale, x: scale, y: 30 * ratio });
  redraw();
}
function origin(panel, pod) {
  return [panel.x + Math.floor(pod / map.podsBelow) * map.podWidth,
    (pod % map.podsBelow) * map.podHeight];
}
function corner(panel, cell) {
  const { column, pod, low } = placeOf(panel, cell), [x, y] = origin(panel, pod);
  return [view.x + (x + column) * view.scale, view.y + (y + low) * view.scale];
}
export function redraw() {
  if (queued) return;
  queued = true;
  requestAnimationFrame(() => {
    queued = false;
    frame();
  });
}
function frame() {
  if (!map) return;
  const ratio = size(), { scale, x, y } = view;
  pen.fillStyle = css(colours.paper);
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.imageSmoothingEnabled = false;
  for (const panel of panels) {
    for (let pod = 0; pod < map.pods; pod++) drawPod(panel, pod, ratio);
    mark(panel);
  }
  pen.fillStyle = css(colours.ink);
  pen.font = `${12 * ratio}px system-ui, sans-serif`;
  for (const panel of panels) {
    for (let pod = 0; pod < map.pods; pod += map.podsBelow) {
      const px = x + origin(panel, pod)[0] * scale, wide = (panel.columns + GAP - 0.5) * scale;
      if (wide > 45 * ratio || pod === 0) pen.fillText(TITLES[panel.name], px,
        Math.max(14 * ratio, y - 8 * ratio), Math.max(wide, 20 * ratio));
    }
  }
  const [first] = panels, room = (map.podHeight - first.band) * scale;
  pen.fillStyle = colours.dim;
  for (let pod = 0; pod < map.pods && room > 14 * ratio; pod++) {
    const [px, py] = origin(first, pod);
    pen.fillText(`Pod ${pod}`, x + px * scale, y + (py + first.band) * scale + 13 * ratio);
  }
}
function drawPod(panel, pod, ratio) {
  const { scale, x, y } = view, [ox, oy] = origin(panel, pod);
  // only the visible part is scaled: the work of a frame does not grow with the fabric
  const left = Math.max(0, Math.floor(-x / scale - ox));
  const right = Math.min(panel.columns, Math.ceil((canvas.width - x) / scale - ox));
  const top = Math.max(0, Math.floor(-y / scale - oy));
  const bottom = Math.min(panel.band, Math.ceil((canvas.height - y) / scale - oy));
  if (right <= left || bottom <= top) return;
  const px = x + (ox + left) * scale, py = y + (oy + top) * scale;
  pen.drawImage(panel.image, left, pod * panel.band + top, right - left, bottom - top,
    px, py, (right - left) * scale, (bottom - top) * scale);
  if (scale < 7 * ratio) return;
  pen.strokeStyle = css(colours.paper);
  pen.lineWidth = 1;
  pen.beginPath();
  for (let column = left; column <= right; column++) {
    pen.moveTo(px + (column - left) * scale, py);
    pen.lineTo(px + (column - left) * scale, py + (bottom - top) * scale);
  }
  for (let row = top; row <= bottom; row++) {
    pen.moveTo(px, py + (row - top) * scale);
    pen.lineTo(px + (right - left) * scale, py + (row - top) * scale);
  }
  pen.stroke();
}
function mark(panel) {
  const { scale } = view, ratio = window.devicePixelRatio || 1;
  const cells = proposal || (map.question && map.question.cells);
  const would = cells ? cells[panel.name] : null;
  if (would) {
    pen.strokeStyle = css(colours.ink);
    pen.lineWidth = Math.max(1, Math.min(3 * ratio, scale / 5));
    const inset = pen.lineWidth / 2;
    pen.beginPath();
    for (const cell of would) {
      const [px, py] = corner(panel, cell);
      if (px < -scale || py < -scale || px > canvas.width || py > canvas.height) continue;
      pen.rect(px + inset, py + inset, scale - 2 * inset, scale - 2 * inset);
    }
    pen.stroke();
  }
  if (chosen && chosen.panel === panel) {
    const [px, py] = corner(panel, chosen.cell);
    pen.strokeStyle = colours.accent;
    pen.lineWidth = 3 * ratio;
    pen.strokeRect(px - 2 * ratio, py - 2 * ratio, scale + 4 * ratio, scale + 4 * ratio);
  }
}
export function intoView(panel, cell) {
  const { scale } = view, [px, py] = corner(panel, cell);
  if (px < 0) view.x -= px - scale;
  if (px > canvas.width - scale) view.x -= px - canvas.width + 2 * scale;
  if (py < 20) view.y -= py - 40;
  if (py > canvas.height - scale) view.y -= py - canvas.height + 3 * scale;
}
export function placeOf(panel, cell) {
  const row = Math.floor(cell / panel.columns), column = cell % panel.columns;
  return { row, column, pod: Math.floor(row / panel.band), low: row % panel.band };
}
export function zoom(factor, x = canvas.width / 2, y = canvas.height / 2) {
  const scale = Math.min(80, Math.max(0.5, view.scale * factor)), grown = scale / view.scale;
  setView({ scale, x: x - (x - view.x) * grown, y: y - (y - view.y) * grown });
  redraw();
}
export function under(event) {
  const box = canvas.getBoundingClientRect(), ratio = canvas.width / box.width;
  const x = ((event.clientX - box.left) * ratio - view.x) / view.scale;
  const y = ((event.clientY - box.top) * ratio - view.y) / view.scale;
  const fold = Math.floor(x / map.podWidth), step = Math.floor(y / map.podHeight);
  const pod = fold * map.podsBelow + step, low = Math.floor(y - step * map.podHeight);
  if (fold < 0 || step < 0 || step >= map.podsBelow || pod >= map.pods) return null;
  for (const panel of panels) {
    const column = Math.floor(x - fold * map.podWidth - panel.x);
    if (column >= 0 && column < panel.columns && low < panel.band)
      return [panel, (pod * panel.band + low) * panel.columns + column];
  }
  return null;
}
