// SPDX-License-Identifier: Apache-2.0
// What the page shows at this moment; every part reads it, and changes it here.

export const FREE = 1, OTHERS = 2, WITHHELD = 3, FIRST = 4, UNKNOWN_LOAD = 255, GAP = 3, MOST_ROWS = 200;
export const STATES = ["no cable", "up", "drained", "failed"];
export const SHARES = { load: "reserved", promised: "promised to sharers", measured: "measured" };
export const TITLES = { hosts: "Hosts", leaf: "Leaf links", spine: "Spine links" };

export let given = {}, map = null, panels = [], view = null, chosen = null, focusTenant = null, colours = {};
export let proposal = null, observation = null;
export const setGiven = (one) => { given = one; };
export const setMap = (one) => { map = one; };
export const setPanels = (list) => { panels = list; };
export const setView = (one) => { view = one; };
export const setChosen = (one) => { chosen = one; };
export const setFocus = (tenant) => { focusTenant = tenant; };
export const setColours = (known) => { colours = known; };
// Cells that a dry run would give, by panel; null: none is drawn.
export const setProposal = (cells) => { proposal = cells; };
// What operators see of observation and its alarm; null: not known, or not theirs.
export const setObservation = (answer) => { observation = answer; };
