// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import test from "node:test";
import { load } from "./load.mjs";

const { arranged } = await load("model.js");
const bytes = (...list) => Buffer.from(list).toString("base64");
const words = (...list) => Buffer.from(new Uint16Array(list).buffer).toString("base64");
const none = { rows: 0, columns: 0, owner: "", state: "", load: "" };
const cells = (rows, columns, more) => ({ rows, columns, owner: words(...Array(rows * columns).fill(1)),
  state: bytes(...Array(rows * columns).fill(1)), load: bytes(...Array(rows * columns).fill(0)), ...more });
const tree = { m: [2, 2, 3], w: [1, 2, 2], cables: [1, 1], rails: 1 };
const document_ = (matrices, more) => ({ tree, hosts: [], tenants: [{ id: "a" }, { id: "b" }],
  matrices: { hosts: none, leaf: none, spine: none, ...matrices }, ...more });

test("owners above 255 are read from two bytes, and a host knows its cell", () => {
  const hosts = cells(6, 2, { owner: words(300, ...Array(11).fill(1)) });
  const map = document_({ hosts }, { hosts: [["n0", [0], []], ["n1", [1], []]] });
  const [panel] = arranged(map);
  assert.equal(panel.owner[0], 300);
  assert.equal(map.hostOfCell.get(1), 1);
  assert.equal(map.tenantOf.get("b"), 1);
  assert.deepEqual([map.pods, panel.band], [3, 2]);
});

test("panels stand beside each other, and those without cells are left out", () => {
  const map = document_({ hosts: cells(6, 2), leaf: cells(6, 2) });
  const panels = arranged(map);
  assert.deepEqual(panels.map((one) => one.name), ["hosts", "leaf"]);
  assert.ok(panels[1].x >= panels[0].columns);
  assert.ok(map.podWidth >= panels[1].x + panels[1].columns);
});

test("a promise is shown as its fuller direction's share, never as not known", () => {
  const both = [{ bandwidth: 10, promised: 2, measured: null }, { bandwidth: 10, promised: 90, measured: 1 }];
  const map = document_({ leaf: cells(6, 2) }, { promises: { leaf: { 3: both } } });
  const [leaf] = arranged(map);
  assert.equal(leaf.promised[3], 254);
  assert.equal(leaf.measured[3], 10);
  assert.equal(leaf.promised[2], 0);
});
