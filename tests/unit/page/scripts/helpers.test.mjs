// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import test from "node:test";
import { load } from "./load.mjs";

const { stateText } = await load("helpers.js");

test("a tenant's state tells how many pairs of others cross its links", () => {
  assert.equal(stateText({ state: "active", crossed_by: 0 }), "active");
  assert.equal(stateText({ state: "active", crossed_by: 1 }), "active, crossed by 1 pair of others");
  assert.equal(stateText({ state: "active", crossed_by: 12 }), "active, crossed by 12 pairs of others");
  assert.equal(stateText({}), "-");
});
