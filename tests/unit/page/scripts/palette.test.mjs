// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { PAGE, load } from "./load.mjs";

const { rgb } = await load("helpers.js");
const { difference, numbersOfColours, paletteBeside } = await load("palette.js");
const NAMES = ["paper", "free", "others", "withheld", "failed", "drained", "up"];
const sheet = readFileSync(`${PAGE}/page.css`, "utf8");
const themes = [/:root \{[^}]*\}/, /:root\[data-theme="dark"\] \{[^}]*\}/].map((block) =>
  NAMES.map((name) => rgb(new RegExp(`--${name}: (#\\w{6})`).exec(block.exec(sheet)[0])[1])));

test("colours of tenants are apart from states and from each other", () => {
  for (const states of themes) {
    const list = paletteBeside(states);
    assert.ok(list.length >= 24, `${list.length} colours`);
    list.forEach((colour, i) => {
      for (const state of states) assert.ok(difference(colour, state) >= 12);
      for (const other of list.slice(0, i)) assert.ok(difference(colour, other) >= 7);
    });
  }
});

test("the measure is that of Oklab: black and white are 100 apart", () => {
  assert.ok(Math.abs(difference([0, 0, 0], [255, 255, 255]) - 100) < 0.1);
});

test("190 tenants: who share a pod differ, and nobody's colour moves when one leaves", () => {
  const count = paletteBeside(themes[0]).length, known = new Map();
  const ids = Array.from({ length: 190 }, (_, i) => `tenant-${i}`);
  const places = ids.map((_, i) => new Set([i % 18, (i * 7) % 18]));
  const first = numbersOfColours(ids, places, known, count);
  ids.forEach((_, i) => ids.slice(0, i).forEach((__, j) => {
    if ([...places[i]].some((pod) => places[j].has(pod))) assert.notEqual(first[i], first[j]);
  }));
  const gone = 50;
  const rest = ids.filter((_, i) => i !== gone), pods = places.filter((_, i) => i !== gone);
  assert.deepEqual(numbersOfColours(rest, pods, known, count), first.filter((_, i) => i !== gone));
});
