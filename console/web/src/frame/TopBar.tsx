/** The bar at the top: what is looked at, by whom, whether it is live, the search and the page's own settings. */

import { useRef } from "preact/hooks";
import { choices } from "../state/address.ts";
import { link } from "../state/link.ts";
import { singleKeys, theme, type Theme } from "../state/preferences.ts";
import { store } from "../state/store.ts";
import { Icon } from "../parts/Icon.tsx";
import { LiveState } from "./LiveState.tsx";
import { NamespaceChoice } from "./NamespaceChoice.tsx";
import { SEARCH_ID, shortcutsAreOpen } from "./Shortcuts.tsx";

const NEXT: Readonly<Record<Theme, Theme>> = { "": "light", light: "dark", dark: "" };
const THEME_NAMES: Readonly<Record<Theme, string>> = { "": "as the system", light: "light", dark: "dark" };

export function TopBar() {
  const origin = store.origin.value;
  return (
    <header class="top">
      <h1>
        <svg class="brand" viewBox="0 0 16 16" width="18" height="18" aria-hidden="true">
          <rect class="brand-full" x="1" y="1" width="6" height="6" rx="1" />
          <rect class="brand-full" x="9" y="1" width="6" height="6" rx="1" />
          <rect class="brand-full" x="1" y="9" width="6" height="6" rx="1" />
          <rect class="brand-free" x="9.5" y="9.5" width="5" height="5" rx="1" />
        </svg>
        GPU console
      </h1>
      {origin !== null && (
        <p class="origin" title={`Version ${origin.version}`}>
          {origin.origin}
        </p>
      )}
      {origin !== null && link.value.kind !== "refused" && <NamespaceChoice viewer={origin.viewer} />}
      {origin === null || link.value.kind === "refused" ? <span class="search" /> : <Search />}
      <LiveState />
      <button
        type="button"
        class="quiet"
        aria-label={`Colours: ${THEME_NAMES[theme.value]}. Change`}
        title={`Colours: ${THEME_NAMES[theme.value]}`}
        onClick={() => (theme.value = NEXT[theme.value])}
      >
        <Icon name={theme.value || "system"} />
      </button>
      <button
        type="button"
        class="quiet"
        aria-label="Keyboard shortcuts"
        title={singleKeys.value === "on" ? "Keyboard shortcuts (?)" : "Keyboard shortcuts"}
        onClick={() => (shortcutsAreOpen.value = true)}
      >
        <span aria-hidden="true">?</span>
      </button>
    </header>
  );
}

function Search() {
  const timer = useRef(0);
  return (
    <search class="search">
      <Icon name="search" />
      <input
        id={SEARCH_ID}
        type="search"
        aria-label="Search nodes, devices, pods and namespaces"
        placeholder="Node, device, pod, namespace"
        autocomplete="off"
        spellcheck={false}
        value={choices.text}
        onInput={(event) => {
          const text = event.currentTarget.value;
          window.clearTimeout(timer.current);
          timer.current = window.setTimeout(() => (choices.text.value = text), 120);
        }}
        onKeyDown={(event) => {
          if (event.key !== "Escape") return;
          event.preventDefault();
          window.clearTimeout(timer.current);
          if (event.currentTarget.value === "") event.currentTarget.blur();
          choices.text.value = "";
          event.currentTarget.value = "";
        }}
      />
      <kbd aria-hidden="true">/</kbd>
    </search>
  );
}
