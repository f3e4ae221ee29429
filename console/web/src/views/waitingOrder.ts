/** In which order waiting pods are listed. */

import type { WaitingRow } from "../rows.ts";
import { byText } from "../text/format.ts";

export type Order = "longest" | "queue" | "largest";

export type Keyed = readonly [key: string, row: WaitingRow];

/** Return the rows in order; of equal ones the oldest comes first. */
export function sortedBy(rows: readonly Keyed[], order: Order): readonly Keyed[] {
  return [...rows].sort(([a, x], [b, y]) => firstBy(order, x, y) || byText(x.created, y.created) || byText(a, b));
}

function firstBy(order: Order, a: WaitingRow, b: WaitingRow): number {
  switch (order) {
    case "longest":
      return 0;
    case "queue":
      return byText(a.pool, b.pool) || (a.position ?? 0) - (b.position ?? 0);
    case "largest":
      return b.units - a.units;
  }
}
