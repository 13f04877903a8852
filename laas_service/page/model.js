// SPDX-License-Identifier: Apache-2.0
// The matrices of a map, unpacked, and where their pods stand.
import { bytes, words } from "./helpers.js";
import { GAP, UNKNOWN_LOAD, panels } from "./state.js";

export function matrix(map, name) {
  const raw = map.matrices[name];
  const load = bytes(raw.load), promises = new Map(Object.entries((map.promises || {})[name] || {})
    .map(([cell, both]) => [Number(cell), both]));
  const part = (field) => {
    const made = new Uint8Array(load.length);
    for (const [cell, both] of promises) made[cell] = Math.min(UNKNOWN_LOAD - 1,
      Math.ceil(Math.max(...both.map((one) => 100 * (one[field] || 0) / one.bandwidth))));
    return made;
  };
  return {
    name, rows: raw.rows, columns: raw.columns, owner: words(raw.owner), state: bytes(raw.state),
    load, promised: part("promised"), measured: part("measured"), promises,
    lower: raw.lower ? words(raw.lower) : null,
    upper: raw.upper ? words(raw.upper) : null, image: null,
  };
}

// The panels of a map, those without cells left out; the map learns the sizes of its pods.
export function arranged(map) {
  const [hosts, leaf, spine] = ["hosts", "leaf", "spine"].map((name) => matrix(map, name));
  const [down, up] = map.tree.cables, width1 = map.tree.w[1], width2 = map.tree.w[2];
  leaf.band = hosts.band = map.tree.m[1];
  spine.band = Math.max(1, Math.floor(width1 / down));
  hosts.x = 0;
  leaf.x = hosts.columns + GAP;
  spine.x = leaf.x + leaf.columns + (leaf.columns ? GAP : 0);
  const made = [hosts, leaf, spine].filter((panel) => panel.rows && panel.columns);
  map.hostOfCell = new Map();
  map.hosts.forEach((host, number) => host[1].forEach((c) => map.hostOfCell.set(c, number)));
  map.pods = map.tree.m[2];
  map.podWidth = Math.max(...made.map((panel) => panel.x + panel.columns)) + 2 * GAP;
  map.podHeight = Math.max(...made.map((panel) => panel.band)) + 1;
  map.l2PerPod = Math.max(1, Math.floor(width1 / down));
  map.spinesPerGroup = Math.max(1, Math.floor(width2 / up));
  map.tenantOf = new Map(map.tenants.map((tenant, number) => [tenant.id, number]));
  return made;
}

// The panel and cell of a link, by the parts of its id.
export function cable([, kind, pod, low, up]) {
  const panel = panels.find((one) => one.name === kind);
  if (!panel) return null;
  const row = Number(pod) * panel.band + Number(low);
  return row < panel.rows && Number(low) < panel.band && Number(up) < panel.columns
    ? [panel, row * panel.columns + Number(up)] : null;
}
