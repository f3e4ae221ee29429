/** The rows that the page knows, by section and key, and how a change alters them. */

import type {
  ConsoleChange,
  ConsoleSnapshot,
  DeviceRow,
  EndedRow,
  HealthRow,
  NodeRow,
  PoolRow,
  ReservationRow,
  ShareRow,
  WaitingRow,
} from "../rows.ts";

export interface Tables {
  readonly pools: Map<string, PoolRow>;
  readonly nodes: Map<string, NodeRow>;
  readonly devices: Map<string, DeviceRow>;
  readonly waiting: Map<string, WaitingRow>;
  readonly reservations: Map<string, ReservationRow>;
  readonly ended: Map<string, EndedRow>;
  readonly shares: Map<string, ShareRow>;
  readonly health: Map<string, HealthRow>;
}

export type Section = keyof Tables;

export const SECTIONS: readonly Section[] = [
  "pools",
  "nodes",
  "devices",
  "waiting",
  "reservations",
  "ended",
  "shares",
  "health",
];

export function emptyTables(): Tables {
  return {
    pools: new Map(),
    nodes: new Map(),
    devices: new Map(),
    waiting: new Map(),
    reservations: new Map(),
    ended: new Map(),
    shares: new Map(),
    health: new Map(),
  };
}

export function tablesOf(snapshot: ConsoleSnapshot): Tables {
  return {
    pools: new Map(Object.entries(snapshot.pools)),
    nodes: new Map(Object.entries(snapshot.nodes)),
    devices: new Map(Object.entries(snapshot.devices)),
    waiting: new Map(Object.entries(snapshot.waiting)),
    reservations: new Map(Object.entries(snapshot.reservations)),
    ended: new Map(Object.entries(snapshot.ended)),
    shares: new Map(Object.entries(snapshot.shares)),
    health: new Map(Object.entries(snapshot.health)),
  };
}

/** Section -> keys of the rows that a change has set or removed. */
export type Touched = Partial<Record<Section, ReadonlySet<string>>>;

/** Alter the tables as a change says: rows replace those of the same key, null removes one. */
export function applyChange(tables: Tables, change: ConsoleChange): Touched {
  const touched: Touched = {};
  for (const section of SECTIONS) {
    const rows = change[section];
    if (rows === undefined) continue;
    const keys = replaceRows<unknown>(tables[section], rows);
    if (keys.size > 0) touched[section] = keys;
  }
  return touched;
}

function replaceRows<T>(table: Map<string, T>, rows: Readonly<Record<string, T | null>>): Set<string> {
  const keys = new Set<string>();
  for (const [key, row] of Object.entries(rows)) {
    if (row !== null) table.set(key, row);
    else if (!table.delete(key)) continue;
    keys.add(key);
  }
  return keys;
}
