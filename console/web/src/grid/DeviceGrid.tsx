/**
 * Nodes and their devices. Rows near the viewport alone are in the document, and each of them is rendered again when its
 * own node has changed.
 *
 * Keys move between devices as in any ARIA grid: one device is in the order of tabs.
 */

import { computed, type ReadonlySignal, signal, useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { Empty } from "../parts/Empty.tsx";
import { choices } from "../state/address.ts";
import { steady } from "../state/steady.ts";
import { store } from "../state/store.ts";
import { counted, countText } from "../text/format.ts";
import { DeviceTip, dismissTip, hideTip, showTip } from "./DeviceTip.tsx";
import { type DeviceFilter, hasFilter, nodesAsked } from "./filter.ts";
import { type RowMetrics, type RowRange, rowsBetween, rowTops } from "./layout.ts";
import { Legend, ProductChoice } from "./Legend.tsx";
import { type GridShape, moved, type Place, within } from "./movement.ts";
import { NodeLine } from "./NodeLine.tsx";

const PAGE = 10;
const MORE_ROWS = 12;
const CELL = 28;
const WIDE: Omit<RowMetrics, "perLine"> = { line: 32, head: 0 };
const NARROW: Omit<RowMetrics, "perLine"> = { line: 32, head: 26 };
const NARROW_BELOW = 620;
/** What a wide row has beside its cells. */
const BESIDE = 420;

export const filter: ReadonlySignal<DeviceFilter> = computed(() => ({
  pool: choices.pool.value,
  look: choices.look.value,
  product: choices.product.value,
  text: choices.text.value.trim().toLowerCase(),
}));

/** The nodes that have a device that is asked for, in order. */
const asked = steady(() => {
  void store.versions.grid.value;
  return nodesAsked(store.index, store.peek("devices"), filter.value);
});

/** Another list whenever a node has other devices. */
const all: ReadonlySignal<readonly string[]> = computed(() => {
  void store.versions.grid.value;
  return store.index.nodes();
});

const width = signal(1000);

export function DeviceGrid() {
  const nodes = asked.value;
  if (all.value.length === 0) {
    return (
      <section class="devices" aria-labelledby="devices-title">
        <h2 id="devices-title">Devices</h2>
        <Empty title="No device has been found">
          A GPUDevice is made for each GPU that node feature discovery or the node agent reports.{" "}
          <code>kubectl gpu check</code> says what is missing.
        </Empty>
      </section>
    );
  }
  return (
    <section class="devices" aria-labelledby="devices-title">
      <div class="section-head">
        <h2 id="devices-title">
          Devices <span class="dim">{titleText(nodes.length)}</span>
        </h2>
        <ProductChoice />
      </div>
      <Legend />
      {nodes.length === 0 ? (
        <NothingAsked />
      ) : (
        <Rows nodes={nodes} />
      )}
      <DeviceTip />
    </section>
  );
}

function NothingAsked() {
  const { pool, look, product, text } = filter.value;
  if (pool === "" || look + product + text !== "") {
    return <Empty title="No device is like this">Take away a filter, or search for something else.</Empty>;
  }
  return (
    <Empty title={`Pool ${pool} has no device`}>
      Its deviceSelector matches none, or they have not joined yet. <code>kubectl gpu check</code> says what is missing.
    </Empty>
  );
}

function titleText(shown: number): string {
  const known = counted(all.value.length, "node");
  return hasFilter(filter.value) ? `${countText(shown)} of ${known}` : known;
}

function Rows(props: { readonly nodes: readonly string[] }) {
  const { nodes } = props;
  const grid = useRef<HTMLDivElement>(null);
  const range = useSignal<RowRange>({ from: 0, to: 40 });
  const active = useSignal<Place>({ row: 0, column: 0 });
  const isNarrow = width.value < NARROW_BELOW;
  const perLine = Math.max(4, Math.floor((width.value - (isNarrow ? 0 : BESIDE)) / CELL));
  const shapes = all.value;
  const [tops, metrics] = useMemo(() => {
    const sizes = nodes.map((node) => store.index.sizeOf(node));
    const line: RowMetrics = { ...(isNarrow ? NARROW : WIDE), perLine: Math.min(perLine, largest(sizes)) };
    return [rowTops(sizes, line), line] as const;
  }, [nodes, shapes, isNarrow, perLine]);

  useEffect(() => {
    const element = grid.current;
    if (element === null) return undefined;
    const look = (): void => {
      const top = -element.getBoundingClientRect().top;
      const next = rowsBetween(tops, top, top + window.innerHeight, MORE_ROWS);
      // Half of the rows beyond the viewport may be used up before others are rendered.
      const { from, to } = range.peek();
      const isNear = Math.abs(from - next.from) < MORE_ROWS / 2 && Math.abs(to - next.to) < MORE_ROWS / 2;
      if (!isNear || next.from === 0 || next.to === nodes.length) range.value = next;
    };
    const measured = new ResizeObserver(() => {
      width.value = element.clientWidth;
      look();
    });
    measured.observe(element);
    const later = oncePerFrame(look);
    window.addEventListener("scroll", later, { passive: true });
    window.addEventListener("resize", later);
    look();
    return () => {
      measured.disconnect();
      window.removeEventListener("scroll", later);
      window.removeEventListener("resize", later);
    };
  }, [tops]);

  const shape: GridShape = {
    rows: nodes.length,
    sizeOf: (row) => store.index.sizeOf(nodes[row] ?? ""),
    page: PAGE,
  };
  const current = within(active.value, shape);
  const goTo = (place: Place): void => {
    active.value = place;
    const element = grid.current;
    if (element === null) return;
    scrollTo(element, tops[place.row] ?? 0, tops[place.row + 1] ?? 0);
    requestAnimationFrame(() => element.querySelector<HTMLElement>('[tabindex="0"]')?.focus({ preventScroll: true }));
  };
  const open = (target: EventTarget | null): void => {
    const name = cellOf(target)?.dataset["device"];
    if (name === undefined) return;
    active.value = placeOf(target, nodes) ?? active.value;
    dismissTip();
    choices.device.value = name;
  };
  return (
    <div
      class={`grid ${isNarrow ? "narrow" : "wide"}`}
      ref={grid}
      role="grid"
      aria-label="Devices by node"
      aria-rowcount={nodes.length}
      style={{ height: `${tops[nodes.length] ?? 0}px`, "--per-line": `${metrics.perLine}` }}
      onKeyDown={(event) => {
        const place = placeOf(event.target, nodes);
        if (place === null) return;
        const next = moved(place, event, shape);
        if (next !== null) goTo(next);
        else if (event.key === "Enter" || event.key === " ") open(event.target);
        else return;
        event.preventDefault();
      }}
      onClick={(event) => open(event.target)}
      onPointerOver={(event) => tell(event.target)}
      onPointerLeave={hideTip}
      onFocusIn={(event) => {
        if (event.target instanceof HTMLElement && event.target.matches(":focus-visible")) tell(event.target);
      }}
      onFocusOut={hideTip}
    >
      {rowsIn(range.value, current.row, nodes.length).map((row) => {
        const node = nodes[row] ?? "";
        return (
          <NodeLine
            key={node}
            node={node}
            row={row}
            top={tops[row] ?? 0}
            active={row === current.row ? current.column : -1}
            filter={filter.value}
          />
        );
      })}
    </div>
  );
}

function largest(sizes: readonly number[]): number {
  return sizes.reduce((most, size) => Math.max(most, size), 1);
}

/** Return the rows of a range, and the one that is in the order of tabs. */
function rowsIn(range: RowRange, active: number, count: number): readonly number[] {
  const rows: number[] = [];
  for (let row = range.from; row < Math.min(range.to, count); row += 1) rows.push(row);
  if (active < range.from) rows.unshift(active);
  else if (active >= range.to && active < count) rows.push(active);
  return rows;
}

function cellOf(target: EventTarget | null): HTMLElement | null {
  return target instanceof Element ? target.closest<HTMLElement>("[data-device]") : null;
}

function tell(target: EventTarget | null): void {
  const cell = cellOf(target);
  if (cell !== null) showTip(cell);
  else if (target instanceof Element && target.closest('[role="tooltip"]') === null) hideTip();
}

function placeOf(target: EventTarget | null, nodes: readonly string[]): Place | null {
  const cell = cellOf(target);
  const line = cell?.closest<HTMLElement>("[data-node]");
  if (cell === null || line === null || line === undefined) return null;
  const column = store.index.devicesOf(line.dataset["node"] ?? "").indexOf(cell.dataset["device"] ?? "");
  const row = Number(line.getAttribute("aria-rowindex")) - 1;
  return column < 0 || row >= nodes.length ? null : { row, column };
}

function scrollTo(grid: HTMLElement, top: number, bottom: number): void {
  const box = grid.getBoundingClientRect();
  const above = Number.parseFloat(getComputedStyle(grid).scrollMarginTop) || 0;
  if (box.top + top < above) window.scrollBy(0, box.top + top - above);
  else if (box.top + bottom > window.innerHeight) window.scrollBy(0, box.top + bottom - window.innerHeight + 8);
}

function oncePerFrame(action: () => void): () => void {
  let isAsked = false;
  return () => {
    if (isAsked) return;
    isAsked = true;
    requestAnimationFrame(() => {
      isAsked = false;
      action();
    });
  };
}
