/** Beside a device that is pointed at or has the focus: its name, pool and holders. */

import { signal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { LookMark } from "../parts/LookMark.tsx";
import { store } from "../state/store.ts";
import { deviceText } from "../text/words.ts";

const MOST_HOLDERS = 4;
const GONE_AFTER_MS = 150;

interface Tip {
  readonly name: string;
  readonly cell: HTMLElement;
}

const tip = signal<Tip | null>(null);
let timer = 0;

export function showTip(cell: HTMLElement): void {
  window.clearTimeout(timer);
  const name = cell.dataset["device"] ?? "";
  if (tip.peek()?.cell !== cell) tip.value = { name, cell };
}

/** Hide it soon: the pointer may be on its way into it. */
export function hideTip(): void {
  window.clearTimeout(timer);
  timer = window.setTimeout(() => (tip.value = null), GONE_AFTER_MS);
}

/** Hide it now. */
export function dismissTip(): void {
  window.clearTimeout(timer);
  tip.value = null;
}

export function DeviceTip() {
  const shown = tip.value;
  return shown === null ? null : <Shown key={shown.name} tip={shown} />;
}

function Shown(props: { readonly tip: Tip }) {
  const { name, cell } = props.tip;
  const box = useRef<HTMLDivElement>(null);
  const row = store.peek("devices").get(name);
  void store.nodeVersion(row?.node ?? "").value;
  useLayoutEffect(() => {
    if (box.current !== null) putBeside(box.current, cell);
  });
  if (row === undefined || !cell.isConnected) return null;
  const holders = row.holders ?? [];
  return (
    <div
      ref={box}
      class="tip"
      role="tooltip"
      onPointerEnter={() => window.clearTimeout(timer)}
      onPointerLeave={hideTip}
    >
      <p class="tip-title">
        <LookMark look={row.look} /> {deviceText(row)}
        {row.pool && <span class="dim"> in {row.pool}</span>}
      </p>
      <p>
        {row.node} <code>{row.address}</code>
      </p>
      {row.product && <p class="dim">{row.product}</p>}
      {holders.slice(0, MOST_HOLDERS).map((holder) => (
        <p key={holder} class="holder">
          {holder}
        </p>
      ))}
      {holders.length > MOST_HOLDERS && <p class="dim">and {holders.length - MOST_HOLDERS} more</p>}
    </div>
  );
}

function putBeside(box: HTMLElement, cell: HTMLElement): void {
  const at = cell.getBoundingClientRect();
  const own = box.getBoundingClientRect();
  const below = at.bottom + 6 + own.height <= window.innerHeight;
  const left = Math.max(8, Math.min(at.left - 12, window.innerWidth - own.width - 8));
  box.style.left = `${left}px`;
  box.style.top = `${below ? at.bottom + 6 : at.top - own.height - 6}px`;
}
