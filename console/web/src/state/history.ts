/** A pool's figures over the last hour: those of the snapshot, and one value each ten seconds since. */

import type { PoolHistory, PoolRow } from "../rows.ts";

export const FIGURES = ["used", "reserved", "withheld", "free", "waiting"] as const;

export type Figure = (typeof FIGURES)[number];

const STEP_S = 10;
const KEPT_S = 3600;

export class PoolSeries {
  readonly at: number[];
  readonly values: Readonly<Record<Figure, number[]>>;

  constructor(history: PoolHistory | undefined) {
    this.at = [...(history?.at ?? [])];
    const listOf = (figure: Figure): number[] => this.at.map((_, place) => history?.[figure]?.[place] ?? 0);
    this.values = {
      used: listOf("used"),
      reserved: listOf("reserved"),
      withheld: listOf("withheld"),
      free: listOf("free"),
      waiting: listOf("waiting"),
    };
  }

  /** Note what the pool has now: as a new value, or in place of a value that is not as old as a step. */
  note(atS: number, row: PoolRow): void {
    const isNext = this.at.length < 2 || atS - (this.at.at(-2) ?? 0) >= STEP_S;
    const place = isNext ? this.at.length : this.at.length - 1;
    this.at[place] = Math.max(atS, this.at[place - 1] ?? 0);
    for (const figure of FIGURES) this.values[figure][place] = row[figure] ?? 0;
    const old = this.at.findIndex((one) => one >= atS - KEPT_S);
    if (old <= 0) return;
    this.at.splice(0, old);
    for (const figure of FIGURES) this.values[figure].splice(0, old);
  }
}
