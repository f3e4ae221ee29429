/** What is shown is in the fragment of the address: it can be kept, sent, and gone back to. */

import { batch, signal } from "@preact/signals";

export const VIEWS = ["devices", "waiting", "reservations", "who", "fits", "what-if", "health"] as const;

export type View = (typeof VIEWS)[number];

const NAMES = ["pool", "look", "product", "text", "namespace", "device"] as const;

/** Names in the fragment; a value is empty where nothing is chosen. */
export type Choices = Readonly<Record<(typeof NAMES)[number], string>>;

export interface Address {
  readonly view: View;
  readonly choices: Choices;
}

export function parseFragment(fragment: string): Address {
  const [path = "", query = ""] = fragment.replace(/^#/, "").split("?", 2);
  const asked = new URLSearchParams(query);
  return {
    view: VIEWS.find((one) => one === path) ?? "devices",
    choices: choicesBy((name) => asked.get(name) ?? ""),
  };
}

export function fragmentOf(address: Address): string {
  const chosen = NAMES.filter((name) => address.choices[name] !== "");
  const query = new URLSearchParams(chosen.map((name) => [name, address.choices[name]]));
  return `#${address.view}${chosen.length > 0 ? `?${query}` : ""}`;
}

export const view = signal<View>("devices");
export const choices = choicesBy(() => signal(""));

/** Return the address of a view with what is chosen now. */
export function hrefOf(other: View): string {
  return fragmentOf({ view: other, choices: choicesBy((name) => choices[name].value) });
}

/** Return the address of a view in which nothing is chosen but this, and the namespace. */
export function addressOf(other: View, chosen: Partial<Choices>): string {
  const all = choicesBy((name) => (name === "namespace" ? choices.namespace.value : (chosen[name] ?? "")));
  return fragmentOf({ view: other, choices: all });
}

/** Show what the address says. */
export function follow(fragment: string): void {
  const address = parseFragment(fragment);
  batch(() => {
    view.value = address.view;
    for (const name of NAMES) choices[name].value = address.choices[name];
  });
}

function choicesBy<T>(valueOf: (name: keyof Choices) => T): Record<keyof Choices, T> {
  return Object.fromEntries(NAMES.map((name) => [name, valueOf(name)])) as Record<keyof Choices, T>;
}
