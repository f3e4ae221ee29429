/** Rows of a small cluster. */

import type { ConsoleSnapshot, DeviceRow, PoolRow, WaitingRow } from "../src/rows.ts";

export function aDevice(changes: Partial<DeviceRow> = {}): DeviceRow {
  return {
    node: "gpu-0",
    address: "0000:17:00.0",
    look: "free",
    pool: "training",
    product: "H200",
    units: 1,
    ...changes,
  };
}

export function aPool(changes: Partial<PoolRow> = {}): PoolRow {
  return { mode: "Exclusive", resource: "gpu.deckhouse.io/training", strategy: "BinPack", phase: "Ready", ...changes };
}

export function aWaitingPod(changes: Partial<WaitingRow> = {}): WaitingRow {
  return { namespace: "ml-team", name: "big", pool: "training", units: 4, created: "2026-11-25T12:00:00Z", ...changes };
}

export function aSnapshot(changes: Partial<ConsoleSnapshot> = {}): ConsoleSnapshot {
  return {
    version: "0.1.0",
    origin: "a test",
    at: "2026-11-25T12:00:00Z",
    since: "2026-11-25T11:00:00Z",
    viewer: { allNamespaces: true },
    pools: {},
    nodes: {},
    devices: {},
    waiting: {},
    reservations: {},
    ended: {},
    shares: {},
    health: {},
    history: {},
    ...changes,
  };
}
