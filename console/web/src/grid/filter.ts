/** Which devices the viewer asks for, and the nodes that have one. */

import type { DeviceRow } from "../rows.ts";
import type { DeviceIndex } from "./deviceIndex.ts";

export interface DeviceFilter {
  /** Each of them is empty where it does not matter. */
  readonly pool: string;
  readonly look: string;
  readonly product: string;
  /** In small letters: a part of the name of a device, node, product or holder, or of the PCI address. */
  readonly text: string;
}

export function hasFilter(filter: DeviceFilter): boolean {
  return filter.pool + filter.look + filter.product + filter.text !== "";
}

/** Say whether the device is among those that are asked for. */
export function isAsked(name: string, row: DeviceRow, filter: DeviceFilter): boolean {
  return (
    (filter.pool === "" || row.pool === filter.pool) &&
    (filter.look === "" || row.look === filter.look) &&
    (filter.product === "" || row.product === filter.product) &&
    (filter.text === "" || hasText(name, row, filter.text))
  );
}

/** Return the nodes, in order, that have a device that is asked for. */
export function nodesAsked(
  index: DeviceIndex,
  rows: ReadonlyMap<string, DeviceRow>,
  filter: DeviceFilter,
): readonly string[] {
  if (!hasFilter(filter)) return index.nodes();
  return index.nodes().filter((node) =>
    index.devicesOf(node).some((name) => {
      const row = rows.get(name);
      return row !== undefined && isAsked(name, row, filter);
    }),
  );
}

/** Names of Kubernetes are in small letters, and those of products are not. */
function hasText(name: string, row: DeviceRow, text: string): boolean {
  return (
    name.includes(text) ||
    row.node.includes(text) ||
    row.address.includes(text) ||
    (row.product ?? "").toLowerCase().includes(text) ||
    (row.holders ?? []).some((holder) => holder.includes(text))
  );
}
