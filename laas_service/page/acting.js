// SPDX-License-Identifier: Apache-2.0
// Does what a person chose: asks what is missing, draws a dry run, says what will be lost, repeats the
// service's words when it refuses, and offers to take it back.
import { planned, refusalWords } from "./actions.js";
import { redraw } from "./drawing.js";
import { at, element } from "./helpers.js";
import { live } from "./live.js";
import { cable } from "./model.js";
import { login } from "./sign_in.js";
import { map, panels, setProposal } from "./state.js";

const VERSION = { "OpenStack-API-Version": "isolated-network 1.3" }; // a name is there once in a project
let action = null, key = "", asked = 0;

// Cells of a dry run's hosts and links.
export function cellsOfAnswer(answer) {
  const cells = { hosts: [], leaf: [], spine: [] };
  const known = new Map(map.hosts.map(([name, places]) => [name, places]));
  for (const host of answer.hosts || []) cells.hosts.push(...(known.get(host.name) || [host.index]));
  for (const id of answer.links || []) {
    const hit = cable(/^(leaf|spine)-(\d+)-(\d+)-(\d+)$/.exec(id) || []);
    if (hit) cells[hit[0].name].push(hit[1]);
  }
  return cells;
}

// One request of an action: {ok, answer}. ``key`` makes a repetition of it harmless.
async function send({ method, path, body }, more = {}) {
  const answer = await login.ask(path, { method, body: body && { ...body, ...more },
    headers: method === "POST" ? { ...VERSION, "Idempotency-Key": key } : VERSION });
  return { ok: answer.ok, answer: await answer.json().catch(() => ({})) };
}
const newKey = () => { key = [...crypto.getRandomValues(new Uint8Array(16))].join("-"); };

function filled() {
  const { asks, body } = action, field = at("act-value");
  if (!asks || !field) return body;
  return { ...body, [asks.field]: asks.type === "number" ? Number(field.value) : field.value.trim() };
}
function speak(lines) {
  at("act-words").replaceChildren(...lines.map((line) => element("li", {}, line)));
}
function field({ label: text, type, choices, value }) {
  const input = choices
    ? element("select", { id: "act-value" }, ...choices.map((one) => element("option", {}, one)))
    : element("input", { id: "act-value", type, required: "", ...(type === "number" ? { min: 1, step: 1 } : {}) });
  if (value !== undefined) input.value = value;
  input.addEventListener("input", () => ready(!action.dry));
  return element("label", {}, `${text} `, input);
}
function ready(whether) {
  at("act-go").disabled = !whether;
  if (!whether) propose(null);
}
function propose(cells) {
  setProposal(cells);
  redraw();
}

// Open the dialog of an action; one that draws begins with that.
export function act(chosenAction) {
  action = chosenAction;
  newKey();
  at("act-title").textContent = action.text;
  at("act-go").textContent = action.text;
  at("act-field").replaceChildren(...(action.asks ? [field(action.asks)] : []));
  at("act-loses").textContent = action.loses || "";
  at("act-draw").hidden = !action.dry;
  speak([]);
  ready(!action.dry);
  at("act").showModal();
  if (action.dry && !action.asks) draw();
}
async function draw() {
  const mine = ++asked, body = { ...filled() };
  delete body.wait; // whether it fits now
  const { ok, answer } = await send({ ...action, body }, { dry_run: true });
  if (mine !== asked || !at("act").open) return;
  speak(ok ? planned(answer) : [...refusalWords(answer), ...(action.body.wait ? ["It would wait in the queue."] : [])]);
  ready(ok || Boolean(action.body.wait));
  if (ok) propose(cellsOfAnswer(answer));
}
async function go() {
  const doing = action, request = { ...doing, body: filled() };
  at("act-go").disabled = true;
  const { ok, answer } = await send(request);
  at("act-go").disabled = false;
  if (!ok) {
    newKey();
    speak(refusalWords(answer));
    return;
  }
  at("act").close();
  told(`${doing.done}.`, doing.undo && doing.undo(answer));
  live.now();
}
function told(text, undo) {
  at("done").hidden = false;
  at("done").querySelector("span").textContent = text;
  at("undo").hidden = !undo;
  at("undo").onclick = async () => {
    newKey();
    const { ok, answer } = await send(undo);
    told(ok ? "It is taken back." : refusalWords(answer).join(" "), null);
    live.now();
  };
}

// Buttons of actions.
export const buttons = (actions) => actions.map((one) =>
  element("button", { type: "button", "data-act": one.id, click: () => act(one) }, one.text));

const failed = (error) => speak([`No answer: ${error.message}`]);
at("act-form").addEventListener("submit", (event) => {
  event.preventDefault();
  go().catch(failed);
});
at("act-draw").addEventListener("click", () => at("act-form").reportValidity() && draw().catch(failed));
at("act-leave").addEventListener("click", () => at("act").close());
at("act").addEventListener("close", () => panels.length && propose(null));
