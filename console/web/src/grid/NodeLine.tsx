/** A row of the grid: a node, what it is, and its devices by PCI address. */

import { levelsOf } from "../parts/LookMark.tsx";
import type { DeviceRow } from "../rows.ts";
import { choices } from "../state/address.ts";
import { store } from "../state/store.ts";
import { deviceText, lookClass, NODE_STATES } from "../text/words.ts";
import { type DeviceFilter, isAsked } from "./filter.ts";

export interface NodeLineProps {
  readonly node: string;
  readonly row: number;
  readonly top: number;
  /** Which of its devices is in the order of tabs; -1 for none. */
  readonly active: number;
  readonly filter: DeviceFilter;
}

export function NodeLine(props: NodeLineProps) {
  const { node } = props;
  void store.nodeVersion(node).value;
  const names = store.index.devicesOf(node);
  const rows = store.peek("devices");
  return (
    <div
      role="row"
      class="line"
      aria-rowindex={props.row + 1}
      data-node={node}
      style={{ transform: `translateY(${props.top}px)` }}
    >
      <div role="rowheader" class="line-name" title={node}>
        <span class="line-node">{node}</span>
        <NodeState node={node} />
      </div>
      <div class="cells" role="presentation">
        {names.map((name, place) => {
          const row = rows.get(name);
          return (
            row && <Cell key={name} name={name} row={row} isActive={place === props.active} filter={props.filter} />
          );
        })}
      </div>
      <div role="gridcell" class="line-figures">
        <span class="line-units">{figuresText(names.map((name) => rows.get(name)))}</span>
        <span class="line-product">{placeText(node)}</span>
      </div>
    </div>
  );
}

function Cell(props: {
  readonly name: string;
  readonly row: DeviceRow;
  readonly isActive: boolean;
  readonly filter: DeviceFilter;
}) {
  const { name, row } = props;
  const [used, taken] = levelsOf(row);
  const isShared = (row.units ?? 0) > 1 && row.look === "partly used";
  return (
    <div
      role="gridcell"
      class={`cell mark ${lookClass(row.look)} ${isAsked(name, row, props.filter) ? "" : "pale"}`}
      tabIndex={props.isActive ? 0 : -1}
      aria-selected={choices.device.value === name ? "true" : undefined}
      aria-label={`${row.address} ${deviceText(row)}${row.pool ? `, ${row.pool}` : ""}`}
      data-device={name}
      data-look={row.look}
      style={isShared ? { "--used-level": `${used}%`, "--taken-level": `${taken}%` } : undefined}
    />
  );
}

function NodeState(props: { readonly node: string }) {
  const state = store.peek("nodes").get(props.node)?.state ?? "Unknown";
  const words = NODE_STATES[state];
  if (state === "Ready" || words === "") return null;
  return <span class={`state ${state === "Cordoned" ? "warning" : "bad"}`}>{words}</span>;
}

function figuresText(rows: readonly (DeviceRow | undefined)[]): string {
  let [units, used, reserved] = [0, 0, 0];
  for (const row of rows) {
    units += row?.units ?? 0;
    used += row?.used ?? 0;
    reserved += row?.reserved ?? 0;
  }
  if (units === 0) return "";
  return `${used} of ${units} used${reserved > 0 ? `, ${reserved} reserved` : ""}`;
}

function placeText(node: string): string {
  const row = store.peek("nodes").get(node);
  return [...(row?.pools ?? []), ...(row?.products ?? [])].join(", ");
}
