/** Every pod that waits for units: why, and what would help. */

import { computed, type ReadonlySignal, signal, useSignal } from "@preact/signals";
import { Age } from "../parts/Age.tsx";
import { Empty } from "../parts/Empty.tsx";
import { Icon } from "../parts/Icon.tsx";
import { PoolName } from "../parts/PoolName.tsx";
import { Portion } from "../parts/Portion.tsx";
import type { WaitingRow } from "../rows.ts";
import { choices } from "../state/address.ts";
import { store } from "../state/store.ts";
import { counted, countText } from "../text/format.ts";
import { reasonText } from "../text/words.ts";
import { PodFigures } from "./PodFigures.tsx";
import { type Keyed, type Order, sortedBy } from "./waitingOrder.ts";

const ORDERS: Readonly<Record<Order, string>> = {
  longest: "longest wait",
  queue: "place in the queue of the pool",
  largest: "most units",
};

const order = signal<Order>("longest");
const reason = signal("");

/** Pods of the chosen pool that the search finds. */
const found: ReadonlySignal<readonly Keyed[]> = computed(() => {
  const pool = choices.pool.value;
  const text = choices.text.value.trim().toLowerCase();
  return [...store.rows("waiting")].filter(
    ([key, row]) =>
      (pool === "" || row.pool === pool) &&
      (text === "" || key.toLowerCase().includes(text) || (row.message ?? "").toLowerCase().includes(text)),
  );
});

const listed: ReadonlySignal<readonly Keyed[]> = computed(() => {
  const rows = reason.value === "" ? found.value : found.value.filter(([, row]) => (row.reason ?? "") === reason.value);
  return sortedBy(rows, order.value);
});

export function Waiting() {
  const viewer = store.origin.value?.viewer;
  const rows = listed.value;
  const all = store.rows("waiting").size;
  return (
    <section class="waiting" aria-labelledby="waiting-title">
      <div class="section-head">
        <h2 id="waiting-title">
          Pods that wait <span class="dim">{countText(found.value.length)}</span>
        </h2>
        {all > 1 && <OrderChoice />}
      </div>
      {all === 0 && (
        <Empty title="No pod waits for units">
          {viewer?.allNamespaces
            ? "Whoever asks for a pool's units has them."
            : "This holds for the pods that you may see; others are not counted here."}
        </Empty>
      )}
      {all > 0 && <ReasonChoice />}
      {all > 0 && rows.length === 0 && (
        <Empty title="No pod that waits is like this">Take away a filter, or search for something else.</Empty>
      )}
      <Portion rows={rows} noun="pod">
        {(part) => (
          <ul class="pods">
            {part.map(([key, row]) => (
              <Pod key={key} name={key} row={row} />
            ))}
          </ul>
        )}
      </Portion>
    </section>
  );
}

function ReasonChoice() {
  // A reason that is chosen can be taken away again, also when no pod has it any more.
  const counts = new Map<string, number>(reason.value === "" ? [] : [[reason.value, 0]]);
  for (const [, row] of found.value) counts.set(row.reason ?? "", (counts.get(row.reason ?? "") ?? 0) + 1);
  const reasons = [...counts].sort(([, a], [, b]) => b - a);
  return (
    <div class="legend" role="group" aria-label="Reasons">
      {reasons.map(([one, count]) => (
        <button
          key={one}
          type="button"
          class="look"
          aria-pressed={reason.value === one && one !== ""}
          onClick={() => (reason.value = reason.value === one ? "" : one)}
        >
          {reasonText(one)} <span class="number">{countText(count)}</span>
        </button>
      ))}
    </div>
  );
}

function OrderChoice() {
  return (
    <label class="choice">
      Order{" "}
      <select value={order.value} onChange={(event) => (order.value = event.currentTarget.value as Order)}>
        {(Object.keys(ORDERS) as Order[]).map((one) => (
          <option key={one} value={one}>
            {ORDERS[one]}
          </option>
        ))}
      </select>
    </label>
  );
}

function Pod(props: { readonly name: string; readonly row: WaitingRow }) {
  const { name, row } = props;
  const isOpen = useSignal(false);
  const id = `pod-${name}`;
  const [first, ...others] = row.remedies ?? [];
  return (
    <li class="pod" data-waiting={name}>
      <h3>
        <button
          type="button"
          class="opener"
          aria-expanded={isOpen.value}
          aria-controls={id}
          onClick={() => (isOpen.value = !isOpen.value)}
        >
          <Icon name="open" />
          <span class="dim">{row.namespace}/</span>
          {row.name}
        </button>
      </h3>
      <p class="pod-reason">
        <span class="tag">{reasonText(row.reason)}</span>
      </p>
      <p class="pod-wants">
        {counted(row.units, "unit")} of <PoolName name={row.pool} />
      </p>
      <p class="pod-place" title="Place among the pods that wait for the pool, by priority and age">
        {row.position ? `#${row.position} in line` : ""}
        {row.priority ? <span class="dim"> priority {row.priority}</span> : ""}
      </p>
      <p class="pod-since">
        <Age since={row.created} />
      </p>
      {row.message && <p class="pod-message">{row.message}</p>}
      {first !== undefined && (
        <p class="remedy">
          {first}
          {others.length > 0 && !isOpen.value && <span class="dim"> (and {counted(others.length, "other way")})</span>}
        </p>
      )}
      <div class="pod-more" id={id} hidden={!isOpen.value}>
        {isOpen.value && <More name={name} row={row} others={others} />}
      </div>
    </li>
  );
}

function More(props: { readonly name: string; readonly row: WaitingRow; readonly others: readonly string[] }) {
  const { name, row, others } = props;
  return (
    <>
      {others.map((remedy) => (
        <p key={remedy} class="remedy">
          {remedy}
        </p>
      ))}
      {row.scheduler && (
        <p class="quoted">
          <span class="dim">kube-scheduler said:</span> {row.scheduler}
        </p>
      )}
      <PodFigures name={name} row={row} />
    </>
  );
}
