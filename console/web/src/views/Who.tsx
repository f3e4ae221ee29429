/** Which namespace has what of which pool. */

import { computed, type ReadonlySignal } from "@preact/signals";
import { Empty } from "../parts/Empty.tsx";
import { PoolName } from "../parts/PoolName.tsx";
import { Portion } from "../parts/Portion.tsx";
import { UnitBar } from "../parts/UnitBar.tsx";
import type { ShareRow } from "../rows.ts";
import { choices } from "../state/address.ts";
import { store } from "../state/store.ts";
import { byText, counted, countText, percentText } from "../text/format.ts";

const shares: ReadonlySignal<readonly ShareRow[]> = computed(() => {
  const pool = choices.pool.value;
  const text = choices.text.value.trim().toLowerCase();
  return [...store.rows("shares").values()]
    .filter((row) => (pool === "" || row.pool === pool) && row.namespace.toLowerCase().includes(text))
    .filter((row) => (row.pods ?? 0) + (row.used ?? 0) + (row.reserved ?? 0) + (row.waiting ?? 0) > 0)
    .sort((a, b) => taken(b) - taken(a) || byText(a.namespace, b.namespace) || byText(a.pool, b.pool));
});

export function Who() {
  const viewer = store.origin.value?.viewer;
  return (
    <section aria-labelledby="who-title">
      <h2 id="who-title">
        Who has what <span class="dim">{counted(shares.value.length, "share")}</span>
      </h2>
      {!viewer?.allNamespaces && <p class="dim">Namespaces whose pods you may not see are not in this list.</p>}
      {shares.value.length === 0 ? (
        <Empty title="Nobody has or wants a unit">
          Pods that ask for a pool's units are counted here by namespace.
        </Empty>
      ) : (
        <Portion rows={shares.value} noun="share">
          {(rows) => <Shares rows={rows} />}
        </Portion>
      )}
    </section>
  );
}

function Shares(props: { readonly rows: readonly ShareRow[] }) {
  return (
    <div class="scrolled" role="group" aria-label="Shares by namespace and pool" tabIndex={0}>
      <table>
        <thead>
          <tr>
            <th scope="col">Namespace</th>
            <th scope="col">Pool</th>
            <th scope="col" class="number">
              Pods
            </th>
            <th scope="col" class="number">
              Used
            </th>
            <th scope="col" class="number">
              Reserved
            </th>
            <th scope="col" class="number" title="Units that its waiting pods ask for">
              Wanted
            </th>
            <th scope="col" class="bar-column">
              Share of the pool
            </th>
            <th scope="col" class="number">
              <span class="unseen">Share in percent</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {props.rows.map((row) => (
            <Share key={`${row.namespace} ${row.pool}`} row={row} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Share(props: { readonly row: ShareRow }) {
  const { row } = props;
  const { used = 0, reserved = 0, waiting = 0 } = row;
  const total = store.rows("pools").get(row.pool)?.total ?? 0;
  return (
    <tr data-share={`${row.namespace} ${row.pool}`}>
      <th scope="row">{row.namespace}</th>
      <td>
        <PoolName name={row.pool} />
      </td>
      <td class="number">{countText(row.pods ?? 0)}</td>
      <td class="number">{countText(used)}</td>
      <td class={`number ${reserved === 0 ? "none" : ""}`}>{countText(reserved)}</td>
      <td class={`number ${waiting === 0 ? "none" : "loud"}`}>{countText(waiting)}</td>
      <td>
        <UnitBar figures={{ used, reserved }} total={total} />
      </td>
      <td class="number">{percentText(used + reserved, total)}</td>
    </tr>
  );
}

function taken(row: ShareRow): number {
  return (row.used ?? 0) + (row.reserved ?? 0);
}
