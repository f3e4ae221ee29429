/** The views of the page, and the bar that leads to them. */

import { type ReadonlySignal, computed } from "@preact/signals";
import { choices, hrefOf, type View, view, VIEWS } from "../state/address.ts";
import { findings } from "../state/findings.ts";
import { store } from "../state/store.ts";
import { countText } from "../text/format.ts";
import type { RowHealth } from "../rows.ts";
import { Icon } from "../parts/Icon.tsx";

export const VIEW_NAMES: Readonly<Record<View, string>> = {
  devices: "Devices",
  waiting: "Waiting",
  reservations: "Reservations",
  who: "Who",
  fits: "Fits",
  "what-if": "What if",
  health: "Health",
};

interface Badge {
  readonly text: string;
  readonly tone: string;
}

const waitingCount: ReadonlySignal<Badge | null> = computed(() => {
  const count = countInPool([...store.rows("waiting").values()]);
  return count === 0 ? null : { text: countText(count), tone: "attention" };
});

const reservedCount: ReadonlySignal<Badge | null> = computed(() => {
  const count = countInPool([...store.rows("reservations").values()]);
  return count === 0 ? null : { text: countText(count), tone: "" };
});

const wrongCount: ReadonlySignal<Badge | null> = computed(() => {
  const countOf = (state: RowHealth): number => findings.value.filter(([, row]) => row.state === state).length;
  const [bad, warnings] = [countOf("bad"), countOf("warning")];
  if (bad > 0) return { text: `${countText(bad)} bad`, tone: "bad" };
  return warnings > 0 ? { text: countText(warnings), tone: "attention" } : null;
});

const BADGES: Partial<Record<View, ReadonlySignal<Badge | null>>> = {
  waiting: waitingCount,
  reservations: reservedCount,
  health: wrongCount,
};

export function Views() {
  return (
    <nav class="views" aria-label="Views">
      <ul>
        {VIEWS.map((one) => (
          <li key={one}>
            <a href={hrefOf(one)} aria-current={view.value === one ? "page" : undefined}>
              {VIEW_NAMES[one]}
              <BadgeOf view={one} />
            </a>
          </li>
        ))}
      </ul>
      <Chosen />
    </nav>
  );
}

function BadgeOf(props: { readonly view: View }) {
  const badge = BADGES[props.view]?.value;
  return badge ? <span class={`badge ${badge.tone}`}>{badge.text}</span> : null;
}

function Chosen() {
  const { pool, text } = choices;
  return (
    <p class="chosen">
      {pool.value !== "" && (
        <Chip text={`pool ${pool.value}`} does="show all pools" onClick={() => (pool.value = "")} />
      )}
      {text.value !== "" && <Chip text={`“${text.value}”`} does="empty the search" onClick={() => (text.value = "")} />}
    </p>
  );
}

function Chip(props: { readonly text: string; readonly does: string; readonly onClick: () => void }) {
  return (
    <button
      type="button"
      class="chip"
      aria-label={`${props.text}: ${props.does}`}
      title={props.does}
      onClick={props.onClick}
    >
      {props.text} <Icon name="close" />
    </button>
  );
}

function countInPool(rows: readonly { readonly pool: string }[]): number {
  const pool = choices.pool.value;
  return pool === "" ? rows.length : rows.filter((row) => row.pool === pool).length;
}
