/** The time as the cluster has it, in steps of a second. */

import { signal } from "@preact/signals";
import { momentMs } from "../text/format.ts";

/** Milliseconds since the epoch on the cluster's clock. */
export const now = signal(Date.now());
/** When the last event came, on the viewer's clock. */
export const lastWordMs = signal(0);

let ahead = 0;

/** Note that an event came, which was sent at this time. */
export function receivedAt(at: string): void {
  const atMs = momentMs(at);
  lastWordMs.value = Date.now();
  // Events have whole seconds: a clock that is not off by more than that is right.
  if (atMs !== null && Math.abs(atMs - Date.now() - ahead) > 1500) ahead = atMs - Date.now();
}

export function startClock(): void {
  window.setInterval(() => {
    now.value = Date.now() + ahead;
  }, 1000);
}
