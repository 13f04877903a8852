// SPDX-License-Identifier: Apache-2.0
// Colours of tenants: each keeps its own while the page is open, tenants that share a pod differ, and
// none is near the colour of a state. Differences are distances in Oklab, times 100.
import { hsl } from "./helpers.js";

export const FROM_STATES = 12, FROM_EACH_OTHER = 7, HUES = 24;

function oklab([r, g, b]) {
  const [x, y, z] = [r, g, b].map((value) => {
    const part = value / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  const l = Math.cbrt(0.4122214708 * x + 0.5363325363 * y + 0.0514459929 * z);
  const m = Math.cbrt(0.2119034982 * x + 0.6806995451 * y + 0.1073969566 * z);
  const s = Math.cbrt(0.0883024619 * x + 0.2817188376 * y + 0.6299787005 * z);
  return [0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
    1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
    0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s];
}
export const difference = (one, other) => {
  const [a, b] = [oklab(one), oklab(other)];
  return 100 * Math.hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]);
};

// Colours that are far from those of states and from each other, the most different first.
const palettes = new Map(); // by states
export function paletteBeside(states) {
  const key = states.join(";");
  if (!palettes.has(key)) palettes.set(key, farApart(states));
  return palettes.get(key);
}
function farApart(states) {
  const left = [];
  for (const light of [38, 50, 62, 74])
    for (const saturation of [35, 60, 85])
      for (let hue = 0; hue < HUES; hue++) left.push(hsl(hue * 360 / HUES, saturation, light));
  const far = left.filter((colour) => states.every((state) => difference(colour, state) >= FROM_STATES));
  const nearest = far.map((colour) => Math.min(...states.map((state) => difference(colour, state))));
  const chosen = [];
  for (;;) {
    const best = nearest.indexOf(Math.max(...nearest));
    if (best < 0 || nearest[best] < FROM_EACH_OTHER) return chosen;
    chosen.push(far[best]);
    far.forEach((colour, i) => { nearest[i] = Math.min(nearest[i], difference(colour, far[best])); });
  }
}

// The number of each tenant's colour: ``known`` has those of before, by id, and gets the new ones.
// ``places`` are the sets of pods by tenant; a colour repeats only where no pod is shared, if any is free.
export function numbersOfColours(ids, places, known, count) {
  const used = new Map(); // pod -> numbers
  const mark = (i) => places[i].forEach((pod) => {
    if (!used.has(pod)) used.set(pod, new Set());
    used.get(pod).add(known.get(ids[i]));
  });
  ids.forEach((id, i) => known.has(id) && mark(i));
  ids.forEach((id, i) => {
    if (known.has(id)) return;
    let first = 0;
    for (const letter of id) first = (first * 31 + letter.charCodeAt(0)) % count;
    const taken = (number) => [...places[i]].some((pod) => used.has(pod) && used.get(pod).has(number));
    let number = first;
    for (let step = 0; step < count && taken(number); step++) number = (first + step) % count;
    known.set(id, number);
    mark(i);
  });
  return ids.map((id) => known.get(id));
}
