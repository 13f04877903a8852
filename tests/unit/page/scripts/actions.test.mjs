// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import test from "node:test";
import { load } from "./load.mjs";

const { actionsOf, actionsOnPart, creation, planned, refusalWords } = await load("actions.js");
const tenant = (more) => ({ id: "id-1", name: "a", state: "active", hosts: 3, leaf_links: 2, spine_links: 0,
  requested: 3, degraded: false, error: null, movable: "never", moves_at: null, ...more });
const ids = (one) => actionsOf(one, false).map((action) => action.id);
const of = (one, id) => actionsOf(one, false).find((action) => action.id === id);

test("what can be done follows the state", () => {
  assert.deepEqual(ids(tenant()), ["rename", "consent", "resize", "release"]);
  assert.deepEqual(ids(tenant({ degraded: true })),
    ["rename", "consent", "resize", "repair", "replace", "release"]);
  assert.deepEqual(ids(tenant({ state: "queued" })), ["rename", "consent", "release"]);
  assert.ok(ids(tenant({ error: "Nova does not answer" })).includes("retry"));
  assert.ok(ids(tenant({ moves_at: "2026-01-01T00:00:00Z" })).includes("cancel"));
  assert.deepEqual(ids(tenant({ name: "" })), []); // a name that the viewer may not see
});

test("each undo makes the request that takes the action back", () => {
  assert.deepEqual(of(tenant(), "rename").undo(), { method: "PATCH", path: "v1/allocations/id-1", body: { name: "a" } });
  assert.deepEqual(of(tenant(), "resize").undo().body, { hosts: 3 });
  assert.deepEqual(of(tenant(), "consent").undo().body, { movable: "never" });
  assert.equal(creation({ name: "b", hosts: "2" }, "main").undo({ id: "x/y" }).path, "v1/allocations/x%2Fy");
  const [drain, , ] = actionsOnPart("main", "host", "n1", "up");
  assert.deepEqual([drain.body, drain.undo().body], [{ state: "drained" }, { state: "up" }]);
  const [again] = actionsOnPart("main", "host", "n1", "drained").filter((one) => one.id === "up");
  assert.deepEqual(again.undo().body, { state: "drained" });
});

test("what is lost is said of what nobody can undo, and of what takes a tenant's part", () => {
  assert.match(of(tenant(), "release").loses, /a loses 3 hosts and 2 links/);
  assert.match(of(tenant({ state: "queued" }), "release").loses, /its place in the queue/);
  assert.equal(of(tenant(), "release").undo, undefined);
  const failed = actionsOnPart("main", "link", "leaf-0-0-1", "up", "blue").find((one) => one.id === "failed");
  assert.match(failed.loses, /blue is degraded/);
});

test("a part is not offered what it is already; parts are addressed by their folder", () => {
  assert.ok(actionsOnPart("main", "host", "n1", "drained").every((one) => one.id !== "drained"));
  assert.equal(actionsOnPart("a b", "leaf", "s/1", "")[0].path, "v1/fabrics/a%20b/switches/s%2F1");
  assert.ok(actionsOnPart("main", "switch", "s1", "").every((one) => one.id !== "drained")); // leaves alone
});

test("a form becomes a request, and hours become seconds", () => {
  const { body } = creation({ name: "b", hosts: "12", hours: "1.5", waits: "on" }, "main");
  assert.deepEqual(body, { name: "b", hosts: 12, fabric: "main", duration: 5400, wait: true });
});

test("dry runs and refusals in words", () => {
  const answer = { hosts: [{}, {}], links: ["leaf-0-0-0"], joining: ["n2"], leaving: [] };
  assert.deepEqual(planned(answer), ["It would have 2 hosts and 1 link.", "New: n2"]);
  assert.deepEqual(planned({ moves: [] }), ["Nothing has to move: it fits now."]);
  const problem = { detail: "7 free, 9 asked", largest_fit: 7, errors: [{ field: "hosts", detail: "too many" }] };
  assert.deepEqual(refusalWords(problem),
    ["7 free, 9 asked", "hosts: too many", "The largest size that fits now is 7."]);
});
