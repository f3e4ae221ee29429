/** What the viewer likes, kept by the browser. */

import { effect, type Signal, signal } from "@preact/signals";
import { keep, readKept } from "./storage.ts";

export type Theme = "" | "light" | "dark";

export const theme = kept<Theme>("console-theme", "", ["", "light", "dark"]);
export const singleKeys = kept<"on" | "off">("console-keys", "on", ["on", "off"]);

/** Let the document look as the viewer likes. */
export function startPreferences(): void {
  effect(() => {
    if (theme.value === "") delete document.documentElement.dataset["theme"];
    else document.documentElement.dataset["theme"] = theme.value;
  });
}

function kept<T extends string>(key: string, usual: T, values: readonly T[]): Signal<T> {
  const before = readKept(() => localStorage, key);
  const preference = signal(values.find((value) => value === before) ?? usual);
  effect(() => keep(() => localStorage, key, preference.value === usual ? null : preference.value));
  return preference;
}
