/** Which devices a node has, in order, and how many look how; kept in step with the table row by row. */

import type { DeviceRow } from "../rows.ts";
import { byName, byText } from "../text/format.ts";

export type Counts = ReadonlyMap<string, number>;

interface PlacedDevice {
  readonly name: string;
  readonly address: string;
}

export class DeviceIndex {
  private readonly rows = new Map<string, DeviceRow>();
  private readonly byNode = new Map<string, PlacedDevice[]>();
  private readonly looks = new Map<string, Map<string, number>>();
  private readonly counts = new Map<string, number>();
  private sorted: readonly string[] | null = null;

  /** Read all rows again. */
  replaceAll(rows: ReadonlyMap<string, DeviceRow>): void {
    for (const map of [this.rows, this.byNode, this.looks, this.counts]) map.clear();
    this.sorted = null;
    for (const [name, row] of rows) this.add(name, row);
    for (const devices of this.byNode.values()) devices.sort(byAddress);
  }

  /** Replace or remove a row; return whether the grid has another shape now. */
  update(name: string, row: DeviceRow | undefined): boolean {
    const before = this.rows.get(name);
    if (before !== undefined) this.count(before, -1);
    if (before !== undefined && row !== undefined && isSamePlace(before, row)) {
      this.rows.set(name, row);
      this.count(row, 1);
      return false;
    }
    if (before !== undefined) this.remove(name, before);
    if (row !== undefined) {
      this.add(name, row);
      this.byNode.get(row.node)?.sort(byAddress);
    }
    // Another list, also of the same nodes: one of them has other devices.
    this.sorted &&= [...this.sorted];
    return before !== undefined || row !== undefined;
  }

  /** Return the node that a device is in. */
  nodeOf(name: string): string | undefined {
    return this.rows.get(name)?.node;
  }

  /** Return the names of all nodes that have a device, in order; the same list as long as the grid has one shape. */
  nodes(): readonly string[] {
    this.sorted ??= [...this.byNode.keys()].sort(byName);
    return this.sorted;
  }

  /** Return the names of a node's devices by PCI address. */
  devicesOf(node: string): readonly string[] {
    return (this.byNode.get(node) ?? []).map((device) => device.name);
  }

  /** Return the rows of a node's devices, in the same order. */
  rowsOf(node: string): readonly DeviceRow[] {
    return (this.byNode.get(node) ?? []).flatMap((device) => this.rows.get(device.name) ?? []);
  }

  sizeOf(node: string): number {
    return this.byNode.get(node)?.length ?? 0;
  }

  /** Return how many devices of a pool look how; of all pools, and of none, for "". */
  looksIn(pool: string): Counts {
    return this.looks.get(pool) ?? new Map();
  }

  /** Return product -> devices. */
  products(): Counts {
    return this.counts;
  }

  private add(name: string, row: DeviceRow): void {
    this.rows.set(name, row);
    this.count(row, 1);
    const devices = this.byNode.get(row.node);
    if (devices !== undefined) {
      devices.push({ name, address: row.address });
      return;
    }
    this.byNode.set(row.node, [{ name, address: row.address }]);
    this.sorted = null;
  }

  private remove(name: string, row: DeviceRow): void {
    this.rows.delete(name);
    const left = (this.byNode.get(row.node) ?? []).filter((device) => device.name !== name);
    if (left.length > 0) {
      this.byNode.set(row.node, left);
      return;
    }
    this.byNode.delete(row.node);
    this.sorted = null;
  }

  private count(row: DeviceRow, change: 1 | -1): void {
    for (const pool of row.pool ? ["", row.pool] : [""]) {
      const looks = this.looks.get(pool) ?? new Map<string, number>();
      this.looks.set(pool, looks);
      addTo(looks, row.look, change);
    }
    addTo(this.counts, row.product ?? "", change);
  }
}

function addTo(counts: Map<string, number>, key: string, change: number): void {
  const count = (counts.get(key) ?? 0) + change;
  if (count > 0) counts.set(key, count);
  else counts.delete(key);
}

function isSamePlace(before: DeviceRow, after: DeviceRow): boolean {
  return before.node === after.node && before.address === after.address;
}

function byAddress(a: PlacedDevice, b: PlacedDevice): number {
  return byText(a.address, b.address) || byText(a.name, b.name);
}
