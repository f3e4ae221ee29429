/** What a device looks like, as the grid shows it: own colour and own shape, and the level of a shared device. */

import type { DeviceRow } from "../rows.ts";
import { lookClass } from "../text/words.ts";

export function LookMark(props: { readonly look: string }) {
  return <span class={`mark ${lookClass(props.look)}`} aria-hidden="true" />;
}

/** Return the parts of a device's units that are used, and that are used or reserved, in percent. */
export function levelsOf(row: DeviceRow): readonly [number, number] {
  const units = Math.max(1, row.units ?? 0);
  const used = (100 * (row.used ?? 0)) / units;
  return [used, Math.min(100, used + (100 * (row.reserved ?? 0)) / units)];
}
