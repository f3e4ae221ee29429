import assert from "node:assert/strict";
import { test } from "node:test";
import { EventParser, type ServerEvent } from "../src/stream/sse.ts";

function parsed(...pieces: readonly string[]): ServerEvent[] {
  const parser = new EventParser();
  return pieces.flatMap((piece) => parser.feed(piece));
}

test("an event has the kind and the data that were sent", () => {
  assert.deepEqual(parsed('event: change\ndata: {"at":"x"}\n\n'), [{ kind: "change", data: '{"at":"x"}' }]);
});

test("an event without a kind is a message", () => {
  assert.deepEqual(parsed("data: a\n\n"), [{ kind: "message", data: "a" }]);
});

test("wherever the text is cut, the events are the same", () => {
  const text =
    "\ufeffevent: snapshot\r\ndata: {\r\ndata: }\r\n\r\n: alive\n\nid: 7\nevent: change\ndata:b:c\n\ndata\n\nevent: end\rdata: x\r\r";
  const whole = parsed(text);
  assert.deepEqual(whole, [
    { kind: "snapshot", data: "{\n}" },
    { kind: "change", data: "b:c" },
    { kind: "message", data: "" },
    { kind: "end", data: "x" },
  ]);
  for (let cut = 0; cut <= text.length; cut += 1) {
    assert.deepEqual(parsed(text.slice(0, cut), text.slice(cut)), whole, `cut at ${cut}`);
  }
  assert.deepEqual(parsed(...text), whole);
});

test("a comment and an event without data are no events", () => {
  assert.deepEqual(parsed(": alive\n\nevent: change\n\n"), []);
});

test("an event that is not complete is not an event", () => {
  assert.deepEqual(parsed("event: change\ndata: a\n"), []);
});

test("one space after the colon belongs to the field, a second one to the value", () => {
  assert.deepEqual(parsed("data:  a\n\n"), [{ kind: "message", data: " a" }]);
});

test("a line of megabytes in small pieces takes a time that grows with its length", () => {
  const parser = new EventParser();
  const piece = "x".repeat(1024);
  parser.feed("data: ");
  for (let sent = 0; sent < 8 * 1024; sent += 1) assert.deepEqual(parser.feed(piece), []);
  assert.equal(parser.feed("\n\n")[0]?.data.length, 8 * 1024 * 1024);
});
