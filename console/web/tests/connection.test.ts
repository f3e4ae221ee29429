import assert from "node:assert/strict";
import { test } from "node:test";
import { waitMs } from "../src/stream/backoff.ts";
import { Connection, type LinkState, SILENCE_MS } from "../src/stream/connection.ts";
import type { ServerEvent } from "../src/stream/sse.ts";

interface Wait {
  readonly ms: number;
  readonly end: () => void;
}

/** A console whose answers are given, and whose waits end when a test says so. */
class Rig {
  readonly states: LinkState[] = [];
  readonly events: ServerEvent[] = [];
  readonly waits: Wait[] = [];
  opened = 0;
  nowMs = 0;
  readonly connection: Connection;

  constructor(private readonly answers: (() => Response | Promise<Response>)[]) {
    this.connection = new Connection({
      open: async (signal) => {
        this.opened += 1;
        const answer = this.answers.shift();
        if (answer === undefined) return new Promise(() => undefined);
        return abortable(await answer(), signal);
      },
      nowMs: () => this.nowMs,
      lot: () => 1,
      wait: (ms, signal) =>
        new Promise((resolve) => {
          this.waits.push({ ms, end: resolve });
          signal.addEventListener("abort", () => resolve(), { once: true });
        }),
      onState: (state) => this.states.push(state),
      onEvent: (event) => this.events.push(event),
    });
  }

  get state(): LinkState | undefined {
    return this.states.at(-1);
  }

  /** End the last wait of a length. */
  pass(ms: number): void {
    this.waits.findLast((wait) => wait.ms === ms)?.end();
  }
}

/** Break the body off when the request is given up, as fetch does. */
function abortable(answer: Response, signal: AbortSignal): Response {
  const body = answer.body?.pipeThrough(new TransformStream(), { signal }) ?? null;
  return new Response(body, answer);
}

function streamOf(text: string, isOpen = false): () => Response {
  return () =>
    new Response(
      new ReadableStream({
        start(controller) {
          controller.enqueue(new TextEncoder().encode(text));
          if (!isOpen) controller.close();
        },
      }),
    );
}

function refusal(status: number, error: string, headers: Record<string, string> = {}): () => Response {
  return () => new Response(JSON.stringify({ error }), { status, headers });
}

async function until(holds: () => boolean): Promise<void> {
  const end = Date.now() + 10_000;
  while (!holds()) {
    if (Date.now() > end) throw new Error("it does not come to hold");
    await new Promise((resolve) => setImmediate(resolve));
  }
}

const SNAPSHOT = "event: snapshot\ndata: {}\n\n";

test("with the snapshot the page is live, and events are handed on in order", async () => {
  const rig = new Rig([streamOf(`${SNAPSHOT}event: change\ndata: 1\n\n`, true)]);
  rig.connection.start();
  await until(() => rig.events.length === 2);
  assert.deepEqual(rig.states, [{ kind: "connecting" }, { kind: "live" }]);
  assert.deepEqual(
    rig.events.map((event) => event.kind),
    ["snapshot", "change"],
  );
  rig.connection.stop();
});

test("a stream that is cut is opened again, and the page says since when it is not live", async () => {
  const rig = new Rig([streamOf(SNAPSHOT), streamOf(SNAPSHOT, true)]);
  rig.nowMs = 1234;
  rig.connection.start();
  await until(() => rig.state?.kind === "reconnecting");
  assert.deepEqual(rig.state, { kind: "reconnecting", sinceMs: 1234, why: "the console closed the stream" });
  rig.nowMs = 9999;
  rig.pass(waitMs(0, 1));
  await until(() => rig.state?.kind === "live");
  assert.equal(rig.opened, 2);
  rig.connection.stop();
});

test("before the first snapshot a page that gets no answer is not connected, and waits longer each time", async () => {
  const failing = (): Promise<Response> => Promise.reject(new TypeError("fetch failed"));
  const rig = new Rig([failing, failing, failing]);
  rig.connection.start();
  for (const [attempt, wait] of [500, 1000, 2000].entries()) {
    await until(() => rig.waits.some((one) => one.ms === 2 * wait));
    assert.deepEqual(rig.state, { kind: "apart", why: "the console does not answer" });
    assert.equal(rig.opened, attempt + 1);
    rig.pass(2 * wait);
  }
  rig.connection.stop();
});

test("the console says how long to wait", async () => {
  const rig = new Rig([refusal(503, "100 pages are open", { "Retry-After": "5" })]);
  rig.connection.start();
  await until(() => rig.waits.some((wait) => wait.ms === 5000));
  assert.deepEqual(rig.state, { kind: "apart", why: "100 pages are open" });
  rig.connection.stop();
});

test("a viewer who has to log in is asked for a token where the console takes one, and is not asked again and again", async () => {
  for (const [scheme, asksForToken] of [
    ["Bearer", true],
    ["Console-Address", false],
  ] as const) {
    const rig = new Rig([refusal(401, "log in", { "WWW-Authenticate": scheme })]);
    rig.connection.start();
    await until(() => rig.state?.kind === "refused");
    assert.deepEqual(rig.state, { kind: "refused", asksForToken, isKnown: false, why: "log in" });
    assert.equal(rig.waits.filter((wait) => wait.ms !== SILENCE_MS).length, 0);
  }
});

test("a viewer who lacks a right is known", async () => {
  const rig = new Rig([refusal(403, "may not list gpupools")]);
  rig.connection.start();
  await until(() => rig.state?.kind === "refused");
  assert.deepEqual(rig.state, { kind: "refused", asksForToken: false, isKnown: true, why: "may not list gpupools" });
});

test("a stream that ends with a word says why, and whether the viewer has to log in", async () => {
  const end = (document: object): string => `${SNAPSHOT}event: end\ndata: ${JSON.stringify(document)}\n\n`;
  const stopped = new Rig([streamOf(end({ message: "it is being stopped" }), true)]);
  stopped.connection.start();
  await until(() => stopped.state?.kind === "reconnecting");
  assert.deepEqual(stopped.state, { kind: "reconnecting", sinceMs: 0, why: "it is being stopped" });
  stopped.connection.stop();
  const expired = new Rig([streamOf(end({ message: "the token has expired", isLoginNeeded: true }), true)]);
  expired.connection.start();
  await until(() => expired.state?.kind === "refused");
});

test("a stream that says nothing for forty seconds counts as cut", async () => {
  const rig = new Rig([streamOf(SNAPSHOT, true), streamOf(SNAPSHOT, true)]);
  rig.connection.start();
  await until(() => rig.state?.kind === "live");
  rig.pass(SILENCE_MS);
  await until(() => rig.state?.kind === "reconnecting");
  assert.deepEqual(rig.state, { kind: "reconnecting", sinceMs: 0, why: "no word for 40 seconds" });
  rig.connection.hurry();
  await until(() => rig.state?.kind === "live");
  rig.connection.stop();
});

test("a connection that is started again gives up the former one", async () => {
  const rig = new Rig([streamOf(SNAPSHOT, true), streamOf(SNAPSHOT, true)]);
  rig.connection.start();
  await until(() => rig.state?.kind === "live");
  rig.connection.start();
  await until(() => rig.events.length === 2);
  assert.deepEqual(
    rig.states.map((state) => state.kind),
    ["connecting", "live", "connecting", "live"],
  );
  rig.connection.stop();
});

test("an answer of a proxy is told by its status", async () => {
  const rig = new Rig([() => new Response("<html>", { status: 502, statusText: "Bad Gateway" })]);
  rig.connection.start();
  await until(() => rig.state?.kind === "apart");
  assert.deepEqual(rig.state, { kind: "apart", why: "HTTP 502 Bad Gateway" });
  rig.connection.stop();
});

test("waits double up to half a minute, and are spread by lot over their second half", () => {
  assert.deepEqual(
    [0, 1, 2, 3, 4, 5, 6, 500].map((attempt) => waitMs(attempt, 1)),
    [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000],
  );
  assert.equal(waitMs(0, 0), 500);
});
