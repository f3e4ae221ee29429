/** The one stream of the page, and what has become of it. */

import { computed, effect, type ReadonlySignal, signal } from "@preact/signals";
import { Connection, type LinkState, SILENCE_MS } from "../stream/connection.ts";
import { request } from "../stream/questions.ts";
import { choices } from "./address.ts";
import { lastWordMs, now } from "./clock.ts";
import { bearer } from "./login.ts";
import { store } from "./store.ts";

export const link = signal<LinkState>({ kind: "connecting" });

/** Whether the figures may be old: nothing has been heard for longer than a sign of life is due. */
export const isOld: ReadonlySignal<boolean> = computed(() => {
  void now.value;
  return store.origin.value !== null && Date.now() - lastWordMs.value > SILENCE_MS;
});

const connection = new Connection({
  open: (signal) => {
    const namespace = choices.namespace.peek();
    return request(`api/v1/stream${namespace ? `?namespace=${encodeURIComponent(namespace)}` : ""}`, signal);
  },
  nowMs: Date.now,
  lot: Math.random,
  wait,
  onState: (state) => {
    const asksForToken = state.kind === "refused" && (state.asksForToken || bearer.peek() !== "");
    if (state.kind === "refused") store.forget();
    link.value = state.kind === "refused" ? { ...state, asksForToken } : state;
  },
  onEvent: (event) => store.receive(event),
});

/** Connect, and again whenever another namespace or another token is chosen. */
export function startLink(): void {
  effect(() => {
    void choices.namespace.value;
    void bearer.value;
    connection.start();
  });
  window.addEventListener("online", () => connection.hurry());
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "visible") connection.hurry();
  });
}

export function connectNow(): void {
  connection.hurry();
}

/** Connect again although the viewer was refused: another page may have logged in since. */
export function connectAgain(): void {
  connection.start();
}

function wait(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) {
      resolve();
      return;
    }
    const timer = setTimeout(resolve, ms);
    signal.addEventListener(
      "abort",
      () => {
        clearTimeout(timer);
        resolve();
      },
      { once: true },
    );
  });
}
