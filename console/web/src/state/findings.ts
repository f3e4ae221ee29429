/** What is wrong, of the chosen pool. */

import { computed, type ReadonlySignal } from "@preact/signals";
import type { HealthRow, RowHealth } from "../rows.ts";
import { byName } from "../text/format.ts";
import { choices } from "./address.ts";
import { store } from "./store.ts";

export type Finding = readonly [subject: string, row: HealthRow];

export const WORST_FIRST: readonly RowHealth[] = ["bad", "warning", "good"];

/** All findings about the chosen pool, its nodes and devices, and those about no pool; the worst first. */
export const findings: ReadonlySignal<readonly Finding[]> = computed(() => {
  const pool = choices.pool.value;
  return [...store.rows("health")]
    .filter(([subject]) => pool === "" || isAbout(subject, pool))
    .sort(([a, x], [b, y]) => WORST_FIRST.indexOf(x.state) - WORST_FIRST.indexOf(y.state) || byName(a, b));
});

function isAbout(subject: string, pool: string): boolean {
  const { kind, name } = subjectOf(subject);
  switch (kind) {
    case "GPUPool":
      return name === pool;
    case "GPUDevice":
      return store.peek("devices").get(name)?.pool === pool;
    case "Node":
    case "GPUNodeInventory":
      return store.peek("nodes").get(name)?.pools?.includes(pool) ?? false;
    default:
      return true;
  }
}

/** Return the object that a finding is about: its kind and name are its subject. */
export function subjectOf(subject: string): { readonly kind: string; readonly name: string } {
  const [kind = "", name = ""] = subject.split(" ", 2);
  return { kind, name };
}
