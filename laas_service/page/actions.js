// SPDX-License-Identifier: Apache-2.0
// What can be done to an allocation, a host, a link or a switch: requests to REST, as values.
// An action {id, text, method, path, body, asks, loses, undo, dry}: ``asks`` is a field that the
// person fills in, ``loses`` is said before it happens, ``undo`` makes the request that takes it back.
import { counted } from "./helpers.js";
import { observation } from "./state.js";

const one = (id) => `v1/allocations/${encodeURIComponent(id)}`;
const change = (id, body) => ({ method: "PATCH", path: one(id), body });
const MOVABLE = ["never", "restart", "live"];

// Of an allocation as the map shows it; ``operator``: the viewer sees the whole fabric.
export function actionsOf(tenant, operator) {
  const { id, name, state } = tenant, queued = state === "queued";
  const held = queued ? "its place in the queue" : [counted(tenant.hosts, "host", "hosts"),
    counted(tenant.leaf_links + tenant.spine_links, "link", "links")].join(" and ");
  const list = [
    { id: "rename", text: "Rename", ...change(id), done: `${name} has a new name`,
      asks: { field: "name", label: "New name", type: "text", value: name },
      undo: () => change(id, { name }) },
    { id: "consent", text: "Consent to moves", ...change(id), done: `The consent of ${name} is changed`,
      asks: { field: "movable", label: "May be moved, servers", choices: MOVABLE, value: tenant.movable },
      undo: tenant.movable && (() => change(id, { movable: tenant.movable })) },
  ];
  if (state === "active") {
    list.push({ id: "resize", text: "Resize", ...change(id), dry: true, done: `${name} changes its size`,
      asks: { field: "hosts", label: "Hosts", type: "number", value: tenant.requested },
      undo: () => change(id, { hosts: tenant.requested }) });
    if (tenant.degraded) list.push(
      { id: "repair", text: "Repair links", method: "POST", path: `${one(id)}/repair`,
        done: `${name} gets other links` },
      { id: "replace", text: "Replace failed hosts", method: "POST", path: `${one(id)}/replace-hosts`,
        body: {}, dry: true, done: `${name} gets other hosts`,
        undo: () => ({ method: "POST", path: `${one(id)}/replace-hosts`, body: { turn_back: true } }) });
  }
  if (tenant.moves_at) list.push({ id: "cancel", text: "Call the move off", ...change(id, { movable: "never" }),
    done: `The move of ${name} is called off`,
    undo: () => change(id, { movable: tenant.movable || "restart" }) });
  if (tenant.error) list.push({ id: "retry", text: "Retry now", method: "POST", path: `${one(id)}/retry`,
    done: `The next step of ${name} is taken now` });
  list.push({ id: "release", text: queued ? "Leave the queue" : "Release", method: "DELETE", path: one(id),
    done: `${name} is released`,
    loses: `${name} loses ${held}. Nobody can undo this: a new request may find no room.` });
  return operator || name ? list : [];
}

const COMPONENT = {
  host: [["drained", "Drain", "gets no new owner"], ["failed", "Mark as failed", "counts as failed"],
    ["up", "Use again", "is used again"]],
  link: [["failed", "Mark as failed", "counts as failed"], ["up", "Use again", "is used again"]],
  leaf: [["drained", "Drain", "gets no new owner"], ["maintenance", "Maintain", "is under maintenance"],
    ["failed", "Mark as failed", "counts as failed"], ["up", "Use again", "is used again"]],
};
COMPONENT.switch = COMPONENT.leaf.filter(([state]) => state !== "drained");

// Of a part of the fabric, for operators. ``state`` is what it has now, ``owner`` who loses it.
export function actionsOnPart(fabric, kind, name, state, owner = "") {
  const folder = { host: "hosts", link: "links" }[kind] || "switches";
  const path = `v1/fabrics/${encodeURIComponent(fabric)}/${folder}/${encodeURIComponent(name)}`;
  const say = (wanted) => ({ method: "PATCH", path, body: { state: wanted } });
  return COMPONENT[kind].filter(([wanted]) => wanted !== state).map(([wanted, text, done]) => ({
    id: wanted, text, ...say(wanted), done: `${name} ${done}`,
    loses: wanted === "failed" || wanted === "maintenance" ? `${owner
      ? `${owner} is degraded until it is repaired` : "Nothing new is placed there"}: ${name} ${done}.` : "",
    undo: () => say(kind === "host" && state === "drained" && wanted === "failed" ? "drained"
      : wanted === "up" ? state : "up"),
  }));
}

export const acknowledgement = (fabric) => ({ id: "acknowledge", text: "Acknowledge the alarm",
  method: "PATCH", path: `v1/fabrics/${encodeURIComponent(fabric)}/observation`, body: { acknowledge: true },
  done: "The alarm is acknowledged", loses: "Failures that were held back are recorded from now on." });

// A new allocation, as its form says it; ``waits``: queued if there is no room.
export function creation({ name, hosts, hours, waits }, fabric) {
  const body = { name, hosts: Number(hosts), fabric };
  if (hours) body.duration = 3600 * Number(hours);
  if (waits) body.wait = true;
  return { id: "create", text: "Create", method: "POST", path: "v1/allocations", body, dry: true,
    done: `${name} is asked for`,
    undo: (answer) => ({ method: "DELETE", path: one(answer.id) }) };
}

// Moves that make room: planned first, announced once approved; each can be called off.
export const room = (fabric, hosts) => ({ id: "make-room", text: "Plan moves that make room", method: "POST",
  path: `v1/fabrics/${encodeURIComponent(fabric)}/make-room`, body: { hosts, moves: 2 }, dry: true,
  done: "The moves are announced" });

// What a dry run answered, in words.
export function planned(answer) {
  if (Array.isArray(answer.moves)) {
    if (!answer.moves.length) return ["Nothing has to move: it fits now."];
    return answer.moves.map((move) => `${move.name || move.allocation}: ` +
      `${move.joining.join(" ")} in place of ${move.leaving.join(" ")}`);
  }
  const lines = [`It would have ${counted(answer.hosts.length, "host", "hosts")} and ` +
    `${counted(answer.links.length, "link", "links")}.`];
  if (answer.joining.length) lines.push(`New: ${answer.joining.join(" ")}`);
  if (answer.leaving.length) lines.push(`Given back: ${answer.leaving.join(" ")}`);
  return lines;
}

// A refusal in words: why, and what would fit or make room.
export function refusalWords(problem) {
  const lines = [problem.detail || problem.title || "The service refused."];
  for (const error of problem.errors || []) lines.push(`${error.field}: ${error.detail}`);
  if (Number.isInteger(problem.largest_fit)) lines.push(`The largest size that fits now is ${problem.largest_fit}.`);
  return lines;
}
