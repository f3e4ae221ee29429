/** Words for what rows have as codes. */

import type { DisplayState, DeviceRow, EndedRow, ReservationRow, RowHealth, NodeRowState } from "../rows.ts";
import { counted } from "./format.ts";

/** In the order of the legend. */
export const LOOKS: readonly DisplayState[] = [
  "free",
  "reserved",
  "partly used",
  "used",
  "draining",
  "faulted",
  "in no pool",
];

/** Looks of devices whose free units pods get. */
export const ALLOCATING: ReadonlySet<string> = new Set<DisplayState>(["free", "reserved", "partly used", "used"]);

export const ENDS: Readonly<Record<string, string>> = {
  bound: "bound",
  expired: "expired",
  released: "released",
  not_observed: "pod did not appear",
  taken_over: "given to a pod that exists",
};

export const NODE_STATES: Readonly<Record<NodeRowState, string>> = {
  Ready: "Ready",
  NotReady: "Not ready",
  Cordoned: "Cordoned",
  Missing: "No such node",
  Unknown: "",
};

export const HEALTH_WORDS: Readonly<Record<RowHealth, string>> = { bad: "Bad", warning: "Warning", good: "Good" };

/** Return the class of a look: its words with hyphens; `other` for one that is newer than this page. */
export function lookClass(look: string): string {
  return LOOKS.some((known) => known === look) ? look.replaceAll(" ", "-") : "other";
}

/** Return a reason in words: `UnitsFragmented` is `Units fragmented`. */
export function reasonText(reason: string | undefined): string {
  if (!reason) return "Not known yet";
  const words = reason.replace(
    /([a-z])([A-Z])/g,
    (_, before: string, after: string) => `${before} ${after.toLowerCase()}`,
  );
  return words;
}

/** Return what a device is, in a sentence. */
export function deviceText(row: DeviceRow): string {
  const units = row.units ?? 0;
  const taken = [
    row.used ? `${row.used} used` : "",
    row.reserved ? `${row.reserved} reserved` : "",
    units > 1 ? `of ${counted(units, "unit")}` : "",
  ];
  const shares =
    units > 1 && (row.used || row.reserved) ? ` (${taken.filter(Boolean).join(", ").replace(", of", " of")})` : "";
  return `${row.look}${shares}`;
}

/** Return whom a reservation is for, as far as the viewer may know. */
export function podText(row: ReservationRow | EndedRow): string {
  if (!row.namespace) return "a pod that you may not see";
  return row.pod ? `${row.namespace}/${row.pod}` : `${row.namespace}, a pod without a name yet`;
}
