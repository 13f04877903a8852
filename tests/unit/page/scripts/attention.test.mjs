// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import test from "node:test";
import { load } from "./load.mjs";

const { needsAPerson } = await load("attention.js");
const NOW = Date.parse("2026-01-01T12:00:00Z");
const tenant = (name, more) => ({ id: `id-${name}`, name, state: "active", degraded: false,
  changing: false, error: null, updated_at: "2026-01-01T11:59:00Z", ...more });
const levels = (map) => needsAPerson(map, NOW).map((one) => [one.level, one.what]);

test("what is well needs nobody", () => {
  const busy = tenant("b", { state: "allocating" });
  assert.deepEqual(levels({ tenants: [tenant("a"), busy], faults: [], queue: [] }), []);
});

test("the most urgent stands first, with since, why and the next step", () => {
  const old = "2026-01-01T11:00:00Z";
  const map = {
    tenants: [
      tenant("fine"), tenant("hurt", { degraded: true }),
      tenant("slow", { changing: true, updated_at: old }),
      tenant("waits-for-nova", { error: "Nova does not answer" }),
      tenant("broken", { state: "error", error: "no partition key is left" }),
      tenant("later", { state: "queued" }),
    ],
    faults: [{ kind: "link", name: "leaf-0-0-1", state: "failed", source: "operator", since: old, evidence: null },
      { kind: "host", name: "node1", state: "drained", source: "operator", since: old, evidence: null }],
    queue: [{ id: "id-later", name: "later", detail: "12 hosts are free", expected_start: null }],
  };
  assert.deepEqual(levels(map), [["error", "broken"], ["stuck", "slow"], ["stuck", "waits-for-nova"],
    ["degraded", "hurt"], ["failed", "link leaf-0-0-1"], ["waiting", "later"]]);
  const [broken, slow] = needsAPerson(map, NOW);
  assert.equal(broken.why, "no partition key is left");
  assert.match(broken.next, /laas allocation retry broken/);
  assert.equal(slow.since, old);
  assert.ok(needsAPerson(map, NOW).every((one) => one.why && one.next));
});

test("a map of a plan, which has no moments and no errors", () => {
  const plain = { id: "t0", hosts: 3 };
  assert.deepEqual(needsAPerson({ tenants: [plain] }, NOW), []);
});
