/**
 * Keeps a stream open: connects, reads, and connects again, until the viewer has to log in.
 *
 * A stream that says nothing for 40 s, although a sign of life is due every 15 s, counts as cut.
 */

import type { ErrorAnswer, StreamEnd } from "../rows.ts";
import { waitMs } from "./backoff.ts";
import { EventParser, type ServerEvent } from "./sse.ts";

export const SILENCE_MS = 40_000;

/** What becomes of the connection. */
export type LinkState =
  | { readonly kind: "connecting" }
  | { readonly kind: "live" }
  | { readonly kind: "reconnecting"; readonly sinceMs: number; readonly why: string }
  | { readonly kind: "apart"; readonly why: string }
  | Refused;

/** The viewer has to log in, or is known and lacks a right. */
export interface Refused {
  readonly kind: "refused";
  readonly asksForToken: boolean;
  readonly isKnown: boolean;
  readonly why: string;
}

export interface ConnectionPorts {
  readonly open: (signal: AbortSignal) => Promise<Response>;
  readonly nowMs: () => number;
  readonly lot: () => number;
  /** Resolve after a time, or as soon as the signal is aborted. */
  readonly wait: (ms: number, signal: AbortSignal) => Promise<void>;
  readonly onState: (state: LinkState) => void;
  readonly onEvent: (event: ServerEvent) => void;
}

type Outcome = { readonly kind: "cut"; readonly why: string; readonly retryAfterMs?: number } | Refused;

export class Connection {
  private current = new AbortController();
  private waiting = new AbortController();
  private hasData = false;
  private attempt = 0;
  private lostMs: number | null = null;

  constructor(private readonly ports: ConnectionPorts) {}

  /** Begin again, with another namespace or another token. */
  start(): void {
    this.stop();
    this.current = new AbortController();
    this.hasData = false;
    this.attempt = 0;
    this.lostMs = null;
    this.ports.onState({ kind: "connecting" });
    void this.run(this.current.signal);
  }

  stop(): void {
    this.current.abort();
  }

  /** Do not wait any longer for the next attempt. */
  hurry(): void {
    this.waiting.abort();
  }

  private async run(stopped: AbortSignal): Promise<void> {
    while (!stopped.aborted) {
      const outcome = await this.once(stopped);
      if (stopped.aborted) return;
      if (outcome.kind === "refused") {
        this.ports.onState(outcome);
        return;
      }
      this.lostMs ??= this.ports.nowMs();
      this.ports.onState(
        this.hasData
          ? { kind: "reconnecting", sinceMs: this.lostMs, why: outcome.why }
          : { kind: "apart", why: outcome.why },
      );
      this.waiting = new AbortController();
      const ms = outcome.retryAfterMs ?? waitMs(this.attempt, this.ports.lot());
      this.attempt += 1;
      await this.ports.wait(ms, AbortSignal.any([stopped, this.waiting.signal]));
    }
  }

  private async once(stopped: AbortSignal): Promise<Outcome> {
    const silence = new Silence(this.ports);
    const signal = AbortSignal.any([stopped, silence.signal]);
    try {
      silence.begin();
      const answer = await this.ports.open(signal);
      if (!answer.ok) return await refusal(answer);
      return await this.read(answer, silence);
    } catch (error) {
      if (silence.signal.aborted) return { kind: "cut", why: "no word for 40 seconds" };
      return { kind: "cut", why: error instanceof TypeError ? "the console does not answer" : String(error) };
    } finally {
      silence.end();
    }
  }

  private async read(answer: Response, silence: Silence): Promise<Outcome> {
    const reader = answer.body?.getReader();
    if (reader === undefined) return { kind: "cut", why: "an answer without a body" };
    const parser = new EventParser();
    const decoder = new TextDecoder();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return { kind: "cut", why: "the console closed the stream" };
      silence.begin();
      for (const event of parser.feed(decoder.decode(value, { stream: true }))) {
        if (event.kind === "end") {
          await reader.cancel();
          return ended(JSON.parse(event.data) as StreamEnd);
        }
        this.received(event);
      }
    }
  }

  private received(event: ServerEvent): void {
    this.ports.onEvent(event);
    if (event.kind !== "snapshot") return;
    this.hasData = true;
    this.attempt = 0;
    this.lostMs = null;
    this.ports.onState({ kind: "live" });
  }
}

/** Aborts its signal when nothing begins it again in time. */
class Silence {
  private readonly controller = new AbortController();
  private wait = new AbortController();

  constructor(private readonly ports: ConnectionPorts) {}

  get signal(): AbortSignal {
    return this.controller.signal;
  }

  begin(): void {
    this.wait.abort();
    const wait = new AbortController();
    this.wait = wait;
    void this.ports.wait(SILENCE_MS, wait.signal).then(() => {
      if (!wait.signal.aborted) this.controller.abort();
    });
  }

  end(): void {
    this.wait.abort();
  }
}

function ended(end: StreamEnd): Outcome {
  if (end.isLoginNeeded) return { kind: "refused", asksForToken: false, isKnown: false, why: end.message };
  return { kind: "cut", why: end.message };
}

async function refusal(answer: Response): Promise<Outcome> {
  const why = await errorOf(answer);
  const asksForToken = /\bbearer\b/i.test(answer.headers.get("WWW-Authenticate") ?? "");
  if (answer.status === 401) return { kind: "refused", asksForToken, isKnown: false, why };
  if (answer.status === 403) return { kind: "refused", asksForToken, isKnown: true, why };
  const seconds = Number(answer.headers.get("Retry-After") ?? Number.NaN);
  return Number.isFinite(seconds) ? { kind: "cut", why, retryAfterMs: seconds * 1000 } : { kind: "cut", why };
}

/** Return what an answer that is not 2xx says. */
export async function errorOf(answer: Response): Promise<string> {
  try {
    const body = (await answer.json()) as Partial<ErrorAnswer>;
    if (typeof body.error === "string") return body.error;
  } catch {
    // Not of the console: a proxy answered.
  }
  return `HTTP ${answer.status}${answer.statusText ? ` ${answer.statusText}` : ""}`;
}
