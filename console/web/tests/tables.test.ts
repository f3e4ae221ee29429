import assert from "node:assert/strict";
import { test } from "node:test";
import { FIGURES, PoolSeries } from "../src/state/history.ts";
import { applyChange, tablesOf } from "../src/state/tables.ts";
import { aDevice, aPool, aSnapshot, aWaitingPod } from "./rows.ts";

test("a change replaces rows of the same key, adds new ones and removes those that are null", () => {
  const before = aSnapshot({ devices: { a: aDevice(), b: aDevice() }, waiting: { "x/y": aWaitingPod() } });
  const tables = tablesOf(before);
  const touched = applyChange(tables, {
    at: "2026-11-25T12:00:01Z",
    devices: { a: aDevice({ look: "used" }), b: null, c: aDevice({ look: "faulted" }) },
    waiting: { "x/y": null },
  });
  assert.deepEqual(
    [...tables.devices].map(([name, row]) => [name, row.look]),
    [
      ["a", "used"],
      ["c", "faulted"],
    ],
  );
  assert.equal(tables.waiting.size, 0);
  assert.deepEqual(touched, { devices: new Set(["a", "b", "c"]), waiting: new Set(["x/y"]) });
});

test("a change without a section, and one that removes what is not there, touch nothing", () => {
  const tables = tablesOf(aSnapshot({ pools: { training: aPool() } }));
  assert.deepEqual(applyChange(tables, { at: "x" }), {});
  assert.deepEqual(applyChange(tables, { at: "x", pools: { other: null } }), {});
  assert.equal(tables.pools.size, 1);
});

test("a row may be called as a member of every object is", () => {
  const changes = JSON.parse(
    '{"at": "x", "devices": {"__proto__": {"node": "n", "address": "a", "look": "free"}, "constructor": null}}',
  );
  const tables = tablesOf(aSnapshot());
  assert.deepEqual(applyChange(tables, changes), { devices: new Set(["__proto__"]) });
  assert.equal(tables.devices.get("__proto__")?.look, "free");
});

test("a series keeps a value for each ten seconds or so, and the last one moves with the pool", () => {
  const series = new PoolSeries(undefined);
  for (let at = 0; at <= 60; at += 1) series.note(at, aPool({ used: at }));
  assert.ok(series.at.length >= 6 && series.at.length <= 14, `${series.at}`);
  assert.deepEqual([series.at.at(-1), series.values.used.at(-1)], [60, 60]);
  assert.deepEqual(
    series.at,
    [...series.at].sort((a, b) => a - b),
  );
});

test("a series goes on from what is known, and forgets what is older than an hour", () => {
  const series = new PoolSeries({ at: [0, 1800, 3500], used: [1, 2, 3], free: [9, 8, 7] });
  series.note(4000, aPool({ used: 4, free: 6 }));
  assert.deepEqual(series.at, [1800, 3500, 4000]);
  assert.deepEqual(series.values.used, [2, 3, 4]);
  assert.deepEqual(series.values.reserved, [0, 0, 0]);
  for (const figure of FIGURES) assert.equal(series.values[figure].length, 3);
});

test("a clock that goes back does not turn a series round", () => {
  const series = new PoolSeries({ at: [100, 200], used: [1, 2] });
  series.note(150, aPool({ used: 3 }));
  assert.deepEqual(
    series.at,
    [...series.at].sort((a, b) => a - b),
  );
  assert.equal(series.values.used.at(-1), 3);
});
