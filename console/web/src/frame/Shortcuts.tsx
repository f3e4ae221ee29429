/** The keys of the page, and the list of them. */

import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { dismissTip } from "../grid/DeviceTip.tsx";
import { choices, view, VIEWS } from "../state/address.ts";
import { singleKeys } from "../state/preferences.ts";
import { Icon } from "../parts/Icon.tsx";
import { VIEW_NAMES } from "./Views.tsx";

export const SEARCH_ID = "search";
/** How long the grid may take to come when it is asked for first. */
const FRAMES_TO_LOAD = 120;
export const shortcutsAreOpen = signal(false);

const KEYS: readonly (readonly [string, string])[] = [
  ["/", "search"],
  ...VIEWS.map((one, place): readonly [string, string] => [`${place + 1}`, VIEW_NAMES[one].toLowerCase()]),
  ["g", "to the grid of devices"],
  ["a", "all pools"],
  ["Esc", "close the device, empty the search"],
  ["?", "this list"],
];

const GRID_KEYS: readonly (readonly [string, string])[] = [
  ["← → ↑ ↓", "next device"],
  ["Home, End", "first and last device of the node"],
  ["Ctrl Home, End", "first and last node"],
  ["Page ↑ ↓", "ten nodes"],
  ["Enter", "open the device"],
];

export function Shortcuts() {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    if (shortcutsAreOpen.value) dialog.current?.showModal();
    else dialog.current?.close();
  }, [shortcutsAreOpen.value]);
  return (
    <dialog
      ref={dialog}
      class="shortcuts"
      aria-labelledby="shortcuts-title"
      onClose={() => (shortcutsAreOpen.value = false)}
    >
      <div class="panel-head">
        <h2 id="shortcuts-title">Keyboard</h2>
        <button type="button" class="quiet" aria-label="Close" onClick={() => (shortcutsAreOpen.value = false)}>
          <Icon name="close" />
        </button>
      </div>
      <div class="columns">
        <Keys title="Everywhere" keys={KEYS} />
        <Keys title="In the grid" keys={GRID_KEYS} />
      </div>
      <label class="check">
        <input
          type="checkbox"
          checked={singleKeys.value === "on"}
          onChange={(event) => (singleKeys.value = event.currentTarget.checked ? "on" : "off")}
        />
        Single keys work
      </label>
    </dialog>
  );
}

function Keys(props: { readonly title: string; readonly keys: readonly (readonly [string, string])[] }) {
  return (
    <section>
      <h3>{props.title}</h3>
      <dl class="keys">
        {props.keys.map(([key, meaning]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{meaning}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

/** Listen to the keys of the whole page. */
export function startShortcuts(): void {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (shortcutsAreOpen.value) return;
    if (event.key === "Escape") {
      dismissTip();
      choices.device.value = "";
    } else if (singleKeys.value === "on" && !isTyped(event.target) && pressed(event.key)) event.preventDefault();
  });
}

function pressed(key: string): boolean {
  const chosen = VIEWS[Number(key) - 1];
  if (chosen !== undefined) view.value = chosen;
  else if (key === "/") document.getElementById(SEARCH_ID)?.focus();
  else if (key === "?") shortcutsAreOpen.value = true;
  else if (key === "a") choices.pool.value = "";
  else if (key === "g") toGrid();
  else return false;
  return true;
}

function toGrid(): void {
  view.value = "devices";
  requestAnimationFrame(() => focusGrid(FRAMES_TO_LOAD));
}

function focusGrid(frames: number): void {
  const cell = document.querySelector<HTMLElement>('[role="grid"] [tabindex="0"]');
  if (cell !== null) cell.focus();
  else if (frames > 0) requestAnimationFrame(() => focusGrid(frames - 1));
}

function isTyped(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.matches("input:not([type=checkbox]), select, textarea");
}
