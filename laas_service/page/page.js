// SPDX-License-Identifier: Apache-2.0
// The page: fetches maps, shows them, and keeps what the person looks at.
import { act } from "./acting.js";
import { creation } from "./actions.js";
import { readAddress, writtenAddress } from "./address.js";
import { choose, describe } from "./cells.js";
import { paintPanels } from "./colouring.js";
import { canvas, redraw, whole } from "./drawing.js";
import { at, element } from "./helpers.js";
import "./input.js";
import { live } from "./live.js";
import { arranged } from "./model.js";
import { attention, texts } from "./overview.js";
import { find } from "./search.js";
import { login } from "./sign_in.js";
import {
  chosen, focusTenant, given, map, panels, setChosen, setFocus, setGiven, setMap, setObservation,
  setPanels, setView, view,
} from "./state.js";
import { showTenant } from "./tenant.js";

function load(document_) {
  const same = map && JSON.stringify(map.tree) === JSON.stringify(document_.tree);
  const kept = same && { view, below: map.podsBelow, question: map.question,
    chosen: chosen && [chosen.panel.name, chosen.cell],
    tenant: focusTenant === null ? null : map.tenants[focusTenant].id };
  setMap(document_);
  setPanels(arranged(map));
  setChosen(null);
  setFocus(null);
  document.title = `${map.fabric} - fabric map`;
  at("name").textContent = map.fabric;
  if (same) restore(kept);
  else whole();
  paintPanels();
  const focus = focusedButton();
  texts();
  if (same) find(at("search").value, false);
  else visit();
  focus();
  observed().catch(() => setObservation(null));
}
// Tables are made anew; the button that had the focus has it again afterwards.
function focusedButton() {
  const table_ = document.activeElement.closest("table");
  const all = () => [...table_.querySelectorAll("button")];
  const place_ = table_ ? all().indexOf(document.activeElement) : -1;
  return () => place_ >= 0 && all()[place_] && all()[place_].focus();
}
// What the person looks at stays where it is, while all that is shown becomes new.
function restore(kept) {
  setView(kept.view);
  map.podsBelow = kept.below;
  map.question = map.question || kept.question;
  setFocus(kept.tenant === null ? null : map.tenantOf.get(kept.tenant) ?? null);
  const panel = kept.chosen && panels.find((one) => one.name === kept.chosen[0]);
  if (panel) choose(panel, kept.chosen[1], false);
}
function theme(name) {
  document.documentElement.dataset.theme = name;
  if (map) paintPanels();
}
const dark = window.matchMedia("(prefers-color-scheme: dark)");
dark.addEventListener("change", () => theme(dark.matches ? "dark" : "light"));
at("theme").addEventListener("click", () => theme(
  document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
new ResizeObserver(redraw).observe(canvas);

async function fetchMap(query) {
  at("found").textContent = "The map is being fetched.";
  try {
    const asked = new URLSearchParams(query).toString();
    const answer = await login.ask(asked ? `${given.source}?${asked}` : given.source);
    if (!answer.ok) throw new Error(await login.refusal(answer));
    load(await answer.json());
    at("found").textContent = "";
    if (!asked) live.follow(given.source, answer, load);
  } catch (error) {
    at("found").textContent = `No map: ${error.message}`;
  }
  document.documentElement.dataset.ready = "yes";
}

// The address follows what is looked at, and what it says is looked at when the page opens.
function visit() {
  const looks = readAddress(location.hash), number = map.tenantOf.get(looks.tenant);
  if (looks.colour && looks.colour !== at("colour").value) {
    at("colour").value = looks.colour;
    if (!at("colour").value) at("colour").value = "owner";
    paintPanels();
  }
  if (number !== undefined && focusTenant !== number) showTenant(number);
  if (looks.cell) find(looks.cell);
}
function noteAddress() {
  if (!map) return;
  const [, cell] = chosen ? describe(chosen.panel, chosen.cell)[0] : [];
  const colour = at("colour").value;
  const hash = writtenAddress({ tenant: focusTenant === null ? "" : map.tenants[focusTenant].id, cell,
    colour: colour === "owner" ? "" : colour });
  if (hash !== location.hash) history.replaceState(null, "", hash || location.pathname + location.search);
}
for (const kind of ["click", "keyup", "change"]) document.addEventListener(kind, noteAddress);
window.addEventListener("hashchange", () => map && visit());

// what operators see of observation, beside the map; others are refused, which is no error
async function observed() {
  if (!given.acts || !map.everything) return;
  const fabric = map.fabric;
  const answer = await login.ask(`v1/fabrics/${encodeURIComponent(fabric)}/observation`);
  if (fabric !== map.fabric) return;
  setObservation(answer.ok ? await answer.json() : null);
  attention();
}

// where there are logins the page does not know of any fabric before
async function fabrics() {
  try {
    const answer = await login.ask("v1/fabrics");
    if (!answer.ok) throw new Error(await login.refusal(answer));
    const ids = (await answer.json()).fabrics.map((fabric) => fabric.id);
    if (!ids.length) throw new Error("the service manages no fabric yet");
    const asked = new URLSearchParams(location.search).get("fabric");
    at("fabric").replaceChildren(...ids.map((id) => element("option", {}, id)));
    at("fabric").value = ids.includes(asked) ? asked : ids[0];
    at("several").hidden = ids.length < 2;
    await show();
  } catch (error) {
    at("found").textContent = `No map: ${error.message}`;
    document.documentElement.dataset.ready = "yes";
  }
}
async function show() {
  given.source = `v1/fabrics/${encodeURIComponent(at("fabric").value)}/map`;
  await fetchMap({});
}
at("fabric").addEventListener("change", () => {
  history.replaceState(null, "", `?fabric=${encodeURIComponent(at("fabric").value)}`);
  show();
});

at("new").addEventListener("submit", (event) => {
  event.preventDefault();
  act(creation(Object.fromEntries(new FormData(at("new"))), map.fabric));
});
at("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  fetchMap({ hosts: at("ask-hosts").value });
});
at("ask-slots").addEventListener("submit", (event) => {
  event.preventDefault();
  const names = ["slots", "bandwidth", "deviation", "risks"];
  fetchMap(Object.fromEntries(names.map((name) => [name, at(name).value]).filter(([, text]) => text)));
});

setGiven(JSON.parse(at("data").textContent));
theme(dark.matches ? "dark" : "light");
if (given.map) {
  load(given.map);
  document.documentElement.dataset.ready = "yes";
} else if (given.source) fetchMap({});
else login.start(fabrics, live.stop);
