/** Lists that stay the same as long as their members do, so that nobody renders them again. */

import { computed, type ReadonlySignal } from "@preact/signals";

/** Compute a list; where it has the members of the former one, it is the former one. */
export function steady(list: () => readonly string[]): ReadonlySignal<readonly string[]> {
  let former: readonly string[] = [];
  return computed(() => {
    const next = list();
    if (next.length !== former.length || next.some((one, place) => one !== former[place])) former = next;
    return former;
  });
}
