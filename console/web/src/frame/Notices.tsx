/** What a viewer has to know before they trust the page: figures may be old, or a part is missing. */

import { connectNow, isOld, link } from "../state/link.ts";
import { store } from "../state/store.ts";
import { ClockTime } from "../parts/Age.tsx";

export function Notices() {
  const partial = store.partial.value;
  return (
    <>
      <Trouble />
      {store.isOutdated.value && (
        <section class="notice" aria-label="Version">
          <p>The console is of another version now than this page.</p>
          <button type="button" onClick={() => location.reload()}>
            Load it again
          </button>
        </section>
      )}
      {partial.length > 0 && (
        <section class="notice partial" aria-label="What this picture is without">
          {partial.map((sentence) => (
            <p key={sentence}>{sentence}</p>
          ))}
        </section>
      )}
    </>
  );
}

function Trouble() {
  const state = link.value;
  if (store.origin.value === null || state.kind === "refused") return null;
  const why = state.kind === "reconnecting" || state.kind === "apart" ? state.why : "";
  if (!why && !isOld.value) return null;
  return (
    <section class="notice trouble" aria-label="Connection">
      <p>
        {isOld.value ? "These figures may be old. They are" : "These figures do not move. They are"} as of{" "}
        <ClockTime at={store.asOf.value} />
        {why ? `: ${why}` : ": nothing has been heard since"}.
      </p>
      {why !== "" && (
        <button type="button" onClick={connectNow}>
          Connect now
        </button>
      )}
    </section>
  );
}
