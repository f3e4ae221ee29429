/** How free units lie on nodes: many on few, or few on many. */

import type { DeviceIndex } from "../grid/deviceIndex.ts";
import type { DeviceRow, NodeRow, PoolRow } from "../rows.ts";
import { ALLOCATING } from "../text/words.ts";

/** Fewest free units of the nodes that are counted together: 0, 1, 2 to 3, 4 to 7, 8 and more. */
export const STEPS = [0, 1, 2, 4, 8] as const;

/** Return pool -> nodes by `STEPS`, as the statuses of their devices say; nodes that take no pods are not counted. */
export function nodesByFreeUnits(
  index: DeviceIndex,
  nodes: ReadonlyMap<string, NodeRow>,
): ReadonlyMap<string, readonly number[]> {
  const counts = new Map<string, number[]>();
  for (const node of index.nodes()) {
    const state = nodes.get(node)?.state ?? "Unknown";
    if (state !== "Ready" && state !== "Unknown") continue;
    for (const [pool, free] of freeByPool(index.rowsOf(node))) {
      const steps = counts.get(pool) ?? STEPS.map(() => 0);
      const step = STEPS.findLastIndex((fewest) => fewest <= free);
      steps[step] = (steps[step] ?? 0) + 1;
      counts.set(pool, steps);
    }
  }
  return counts;
}

function freeByPool(rows: readonly DeviceRow[]): ReadonlyMap<string, number> {
  const free = new Map<string, number>();
  for (const row of rows) {
    if (!row.pool || !ALLOCATING.has(row.look)) continue;
    const left = Math.max(0, (row.units ?? 0) - (row.used ?? 0) - (row.reserved ?? 0));
    free.set(row.pool, (free.get(row.pool) ?? 0) + left);
  }
  return free;
}

/** Return the free units that no pod of this size can have, because they are too few on each node. */
export function stranded(row: PoolRow, size: number): number | null {
  const fits = row.fits?.[size];
  return fits === undefined ? null : Math.max(0, (row.free ?? 0) - fits * size);
}
