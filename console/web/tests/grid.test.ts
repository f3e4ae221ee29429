import assert from "node:assert/strict";
import { test } from "node:test";
import { DeviceIndex } from "../src/grid/deviceIndex.ts";
import { isAsked, nodesAsked } from "../src/grid/filter.ts";
import { rowAt, rowsBetween, rowTops } from "../src/grid/layout.ts";
import { type GridShape, moved, type Place, within } from "../src/grid/movement.ts";
import type { DeviceRow } from "../src/rows.ts";
import { nodesByFreeUnits, stranded } from "../src/views/freeUnits.ts";
import { aDevice, aPool } from "./rows.ts";

const NOTHING = { pool: "", look: "", product: "", text: "" };

function indexOf(rows: Readonly<Record<string, DeviceRow>>): DeviceIndex {
  const index = new DeviceIndex();
  index.replaceAll(new Map(Object.entries(rows)));
  return index;
}

const TWO_NODES = {
  "b-1": aDevice({ node: "gpu-10", address: "0000:2a:00.0" }),
  "b-0": aDevice({ node: "gpu-10", address: "0000:17:00.0", look: "used", used: 1, holders: ["ml-team/train-a"] }),
  "a-0": aDevice({ node: "gpu-2", look: "in no pool", pool: "", product: "L40S", units: 0 }),
};

test("nodes are in the order of people, devices in that of their addresses", () => {
  const index = indexOf(TWO_NODES);
  assert.deepEqual(index.nodes(), ["gpu-2", "gpu-10"]);
  assert.deepEqual(index.devicesOf("gpu-10"), ["b-0", "b-1"]);
  assert.deepEqual(index.devicesOf("gpu-3"), []);
});

test("the list of nodes is another one where a node has other devices, and the same one where a device has changed", () => {
  const index = indexOf(TWO_NODES);
  const before = index.nodes();
  index.update("b-0", aDevice({ node: "gpu-10", address: "0000:17:00.0", look: "faulted" }));
  assert.equal(index.nodes(), before);
  index.update("b-2", aDevice({ node: "gpu-10", address: "0000:3d:00.0" }));
  assert.notEqual(index.nodes(), before);
  assert.deepEqual(index.nodes(), before);
  assert.equal(index.nodeOf("b-2"), "gpu-10");
});

test("looks are counted for each pool and for all, and follow every change", () => {
  const index = indexOf(TWO_NODES);
  assert.deepEqual(Object.fromEntries(index.looksIn("")), { free: 1, used: 1, "in no pool": 1 });
  assert.equal(index.update("b-1", aDevice({ node: "gpu-10", address: "0000:2a:00.0", look: "faulted" })), false);
  assert.equal(index.update("a-0", undefined), true);
  assert.deepEqual(Object.fromEntries(index.looksIn("")), { faulted: 1, used: 1 });
  assert.deepEqual(Object.fromEntries(index.looksIn("training")), { faulted: 1, used: 1 });
  assert.deepEqual(Object.fromEntries(index.products()), { H200: 2 });
  assert.deepEqual(index.nodes(), ["gpu-10"]);
});

test("an index that follows changes is the index of the rows that are left", () => {
  const looks = ["free", "used", "faulted"];
  const rows = new Map<string, DeviceRow>();
  const index = indexOf({});
  let lot = 7;
  const draw = (below: number): number => (lot = (lot * 16807) % 2147483647) % below;
  for (let step = 0; step < 3000; step += 1) {
    const name = `d-${draw(40)}`;
    const row = aDevice({
      node: `n-${draw(8)}`,
      address: `0000:${draw(9)}`,
      look: looks[draw(3)] ?? "",
      pool: draw(2) ? "training" : "",
    });
    if (draw(4) === 0) {
      rows.delete(name);
      index.update(name, undefined);
    } else {
      rows.set(name, row);
      index.update(name, row);
    }
  }
  const reread = new DeviceIndex();
  reread.replaceAll(rows);
  assert.deepEqual(index.nodes(), reread.nodes());
  for (const node of reread.nodes()) assert.deepEqual(index.devicesOf(node), reread.devicesOf(node));
  for (const pool of ["", "training"]) {
    assert.deepEqual([...index.looksIn(pool)].sort(), [...reread.looksIn(pool)].sort());
  }
});

test("a device is asked for by pool, look, product, and by a part of any of its names", () => {
  const row = TWO_NODES["b-0"];
  for (const text of ["b-0", "gpu-10", "17:00", "h200", "ml-team/train-a"]) {
    assert.equal(isAsked("b-0", row, { ...NOTHING, text }), true, text);
  }
  for (const other of [{ pool: "x" }, { look: "free" }, { product: "L40S" }, { text: "x" }]) {
    assert.equal(isAsked("b-0", row, { ...NOTHING, ...other }), false);
  }
});

test("nodes with a device that is asked for are shown", () => {
  const index = indexOf(TWO_NODES);
  const rows = new Map(Object.entries(TWO_NODES));
  assert.deepEqual(nodesAsked(index, rows, NOTHING), ["gpu-2", "gpu-10"]);
  assert.deepEqual(nodesAsked(index, rows, { ...NOTHING, look: "used" }), ["gpu-10"]);
  assert.deepEqual(nodesAsked(index, rows, { ...NOTHING, text: "nowhere" }), []);
});

test("a row is as high as its devices need lines", () => {
  const tops = rowTops([8, 16, 17, 0], { line: 32, head: 0, perLine: 8 });
  assert.deepEqual([...tops], [0, 32, 96, 192, 224]);
  assert.deepEqual([...rowTops([8, 8], { line: 32, head: 26, perLine: 8 })], [0, 58, 116]);
});

test("the rows near the viewport are those that it shows, and some more on either side", () => {
  const tops = rowTops(
    Array.from({ length: 5000 }, () => 8),
    { line: 32, head: 0, perLine: 8 },
  );
  assert.deepEqual(rowsBetween(tops, -500, 300, 2), { from: 0, to: 12 });
  assert.deepEqual(rowsBetween(tops, 3200, 4000, 2), { from: 98, to: 128 });
  assert.deepEqual(rowsBetween(tops, 1e9, 2e9, 2), { from: 4997, to: 5000 });
  assert.deepEqual(rowsBetween(rowTops([], { line: 32, head: 0, perLine: 8 }), 0, 800, 2), { from: 0, to: 0 });
});

test("the row at a height is the one that is there", () => {
  const tops = rowTops([8, 16, 8], { line: 32, head: 0, perLine: 8 });
  assert.deepEqual(
    [-1, 0, 31, 32, 95, 96, 1000].map((height) => rowAt(tops, height)),
    [0, 0, 0, 1, 1, 2, 2],
  );
});

const SHAPE: GridShape = { rows: 30, sizeOf: (row) => (row === 1 ? 4 : 8), page: 10 };

function after(place: Place, key: string, ctrlKey = false): Place | null {
  return moved(place, { key, ctrlKey }, SHAPE);
}

test("keys lead to the next device, and stop at the edges", () => {
  assert.deepEqual(after({ row: 0, column: 3 }, "ArrowRight"), { row: 0, column: 4 });
  assert.deepEqual(after({ row: 0, column: 7 }, "ArrowRight"), { row: 0, column: 7 });
  assert.deepEqual(after({ row: 0, column: 0 }, "ArrowLeft"), { row: 0, column: 0 });
  assert.deepEqual(after({ row: 0, column: 0 }, "ArrowUp"), { row: 0, column: 0 });
  assert.deepEqual(after({ row: 29, column: 0 }, "ArrowDown"), { row: 29, column: 0 });
  assert.deepEqual(after({ row: 0, column: 7 }, "ArrowDown"), { row: 1, column: 3 });
});

test("Home, End and pages lead as far as they say", () => {
  assert.deepEqual(after({ row: 3, column: 3 }, "Home"), { row: 3, column: 0 });
  assert.deepEqual(after({ row: 1, column: 0 }, "End"), { row: 1, column: 3 });
  assert.deepEqual(after({ row: 3, column: 3 }, "Home", true), { row: 0, column: 0 });
  assert.deepEqual(after({ row: 3, column: 3 }, "End", true), { row: 29, column: 7 });
  assert.deepEqual(after({ row: 3, column: 3 }, "PageDown"), { row: 13, column: 3 });
  assert.deepEqual(after({ row: 3, column: 3 }, "PageUp"), { row: 0, column: 3 });
});

test("other keys do not move, and a place that is gone is where the nearest one is", () => {
  assert.equal(after({ row: 0, column: 0 }, "Enter"), null);
  assert.deepEqual(within({ row: 99, column: 99 }, SHAPE), { row: 29, column: 7 });
});

test("nodes are counted by the units that pods can have of them", () => {
  const index = indexOf({
    a: aDevice({ node: "n-0", units: 4, used: 1 }),
    b: aDevice({ node: "n-0", address: "0000:2a:00.0", look: "faulted" }),
    c: aDevice({ node: "n-1", look: "used", used: 1 }),
    d: aDevice({ node: "n-2" }),
  });
  const nodes = new Map([["n-2", { state: "Cordoned" as const }]]);
  assert.deepEqual(Object.fromEntries(nodesByFreeUnits(index, nodes)), { training: [1, 0, 1, 0, 0] });
});

test("free units that no pod of a size can have are stranded", () => {
  const pool = aPool({ free: 5, fits: { 1: 5, 2: 2, 4: 0 } });
  assert.deepEqual(
    [1, 2, 4, 8].map((size) => stranded(pool, size)),
    [0, 1, 5, null],
  );
});
