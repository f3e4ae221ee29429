import assert from "node:assert/strict";
import { test } from "node:test";
import { fragmentOf, parseFragment, VIEWS } from "../src/state/address.ts";
import {
  ageText,
  byName,
  countText,
  counted,
  durationText,
  momentMs,
  partLeft,
  percentText,
} from "../src/text/format.ts";
import { deviceText, lookClass, reasonText } from "../src/text/words.ts";
import { sortedBy } from "../src/views/waitingOrder.ts";
import { aDevice, aWaitingPod } from "./rows.ts";

test("a duration is its largest part and the next smaller one", () => {
  const said = [0, 59, 60, 199, 3600, 3661, 86_400, 90_061, -5].map(durationText);
  assert.deepEqual(said, ["0s", "59s", "1m", "3m19s", "1h", "1h1m", "1d", "1d1h", "0s"]);
});

test("an age is empty where there is no time", () => {
  const now = Date.parse("2026-11-25T12:03:19Z");
  assert.equal(ageText("2026-11-25T12:00:00Z", now), "3m19s");
  assert.equal(ageText("", now), "");
  assert.equal(ageText("soon", now), "");
  assert.equal(momentMs(undefined), null);
});

test("thousands are apart, and nouns follow their number", () => {
  assert.deepEqual([0, 999, 1000, 1_234_567].map(countText), ["0", "999", "1,000", "1,234,567"]);
  assert.deepEqual(
    [1, 4, 0].map((count) => counted(count, "unit")),
    ["1 unit", "4 units", "0 units"],
  );
});

test("a share of nothing is nothing, and a small one is not", () => {
  assert.deepEqual(
    [percentText(1, 3), percentText(1, 1000), percentText(0, 8), percentText(0, 0)],
    ["33%", "<1%", "0%", "0%"],
  );
});

test("what is left of a reservation shrinks from all to nothing", () => {
  const [created, expires] = ["2026-11-25T12:00:00Z", "2026-11-25T12:02:00Z"];
  const left = [-10, 0, 30, 120, 500].map((seconds) =>
    partLeft(created, expires, Date.parse(created) + seconds * 1000),
  );
  assert.deepEqual(left, [1, 1, 0.75, 0, 0]);
  assert.equal(partLeft(created, "", 0), 0);
});

test("names are sorted as people do", () => {
  assert.deepEqual(["gpu-10", "gpu-2", "gpu-1"].sort(byName), ["gpu-1", "gpu-2", "gpu-10"]);
});

test("a device is described by its look, and by its units where it has several", () => {
  assert.equal(deviceText(aDevice()), "free");
  assert.equal(deviceText(aDevice({ look: "used", used: 1 })), "used");
  assert.equal(
    deviceText(aDevice({ look: "partly used", units: 4, used: 2, reserved: 1 })),
    "partly used (2 used, 1 reserved of 4 units)",
  );
});

test("a look that is newer than the page is shown, too", () => {
  assert.equal(lookClass("in no pool"), "in-no-pool");
  assert.equal(lookClass("on fire"), "other");
});

test("a reason is told in words", () => {
  assert.deepEqual(["UnitsFragmented", "CachesFitNoDevice", "", undefined].map(reasonText), [
    "Units fragmented",
    "Caches fit no device",
    "Not known yet",
    "Not known yet",
  ]);
});

test("an address says what is shown, and leads there again", () => {
  const address = {
    view: "waiting" as const,
    choices: { pool: "a&b=c", look: "in no pool", product: "", text: "x/y?#", namespace: "", device: "" },
  };
  assert.deepEqual(parseFragment(fragmentOf(address)), address);
  for (const view of VIEWS) assert.equal(parseFragment(`#${view}`).view, view);
});

test("an address that says nothing shows the devices", () => {
  for (const fragment of ["", "#", "#nowhere", "#?pool="]) {
    assert.equal(parseFragment(fragment).view, "devices");
    assert.equal(parseFragment(fragment).choices.pool, "");
  }
});

test("waiting pods are in the order that is asked for, the oldest first among equals", () => {
  const rows = [
    ["a/young", aWaitingPod({ created: "2026-11-25T12:00:09Z", units: 8, position: 1 })],
    ["a/old", aWaitingPod({ created: "2026-11-25T12:00:01Z", units: 1, position: 2 })],
    ["a/other", aWaitingPod({ created: "2026-11-25T12:00:05Z", units: 1, position: 1, pool: "notebooks" })],
  ] as const;
  const keysBy = (order: Parameters<typeof sortedBy>[1]): string[] => sortedBy(rows, order).map(([key]) => key);
  assert.deepEqual(keysBy("longest"), ["a/old", "a/other", "a/young"]);
  assert.deepEqual(keysBy("queue"), ["a/other", "a/young", "a/old"]);
  assert.deepEqual(keysBy("largest"), ["a/young", "a/old", "a/other"]);
});
