// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import test from "node:test";
import { load } from "./load.mjs";

const { readAddress, writtenAddress } = await load("address.js");

test("an address says again what was looked at", () => {
  const looks = { tenant: "id-1", cell: "node#1 & 2", colour: "load" };
  assert.deepEqual(readAddress(writtenAddress(looks)), looks);
});

test("nothing is looked at: nothing is added", () => {
  assert.equal(writtenAddress({ tenant: "", cell: "", colour: "" }), "");
  assert.deepEqual(readAddress(""), { tenant: "", cell: "", colour: "" });
});
