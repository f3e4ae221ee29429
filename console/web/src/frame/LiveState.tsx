/** Whether what the page shows is what the cluster has. */

import { isOld, link } from "../state/link.ts";
import { store } from "../state/store.ts";
import type { LinkState } from "../stream/connection.ts";
import { clockText } from "../text/format.ts";
import { ClockTime } from "../parts/Age.tsx";

export function LiveState() {
  const state = link.value;
  const word = isOld.value && state.kind === "live" ? "old" : state.kind;
  return (
    <div class={`link-state ${word}`} data-state={word}>
      <span class="link-mark" aria-hidden="true" />
      <span role="status">{textOf(state, word)}</span>
      {store.origin.value !== null && (
        <span class="as-of">
          as of <ClockTime at={store.asOf.value} />
        </span>
      )}
    </div>
  );
}

function textOf(state: LinkState, word: string): string {
  if (word === "old") return "No news";
  switch (state.kind) {
    case "live":
      return "Live";
    case "connecting":
      return "Connecting";
    case "reconnecting":
      return `Reconnecting since ${clockText(state.sinceMs)}`;
    case "apart":
    case "refused":
      return "Not connected";
  }
}
