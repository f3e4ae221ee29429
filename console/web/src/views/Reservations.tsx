/** Units that wait for their pods, each with the time that is left, and how others ended. */

import { computed, type ReadonlySignal } from "@preact/signals";
import { ClockTime } from "../parts/Age.tsx";
import { Empty } from "../parts/Empty.tsx";
import { NodeName } from "../parts/NodeName.tsx";
import { PoolName } from "../parts/PoolName.tsx";
import { Portion } from "../parts/Portion.tsx";
import { TimeLeft } from "../parts/TimeLeft.tsx";
import type { EndedRow, ReservationRow } from "../rows.ts";
import { choices } from "../state/address.ts";
import { store } from "../state/store.ts";
import { byText, countText } from "../text/format.ts";
import { ENDS, podText } from "../text/words.ts";

type Row = ReservationRow | EndedRow;

function isFound(row: Row): boolean {
  const pool = choices.pool.value;
  const text = choices.text.value.trim().toLowerCase();
  const said = `${row.namespace ?? ""}/${row.pod ?? ""} ${row.node ?? ""}`.toLowerCase();
  return (pool === "" || row.pool === pool) && said.includes(text);
}

const live: ReadonlySignal<readonly (readonly [string, ReservationRow])[]> = computed(() =>
  [...store.rows("reservations")]
    .filter(([, row]) => isFound(row))
    .sort(([, a], [, b]) => byText(a.expires || "~", b.expires || "~")),
);

const ended: ReadonlySignal<readonly (readonly [string, EndedRow])[]> = computed(() =>
  [...store.rows("ended")].filter(([, row]) => isFound(row)).sort(([, a], [, b]) => byText(b.at, a.at)),
);

export function Reservations() {
  return (
    <>
      <section aria-labelledby="reservations-title">
        <h2 id="reservations-title">
          Reservations <span class="dim">{countText(live.value.length)}</span>
        </h2>
        {live.value.length === 0 ? (
          <Empty title="No reservation">
            Units are reserved from the admission of a pod until it is bound, for minutes at most.
          </Empty>
        ) : (
          <Portion rows={live.value} noun="reservation">
            {(rows) => <Live rows={rows} />}
          </Portion>
        )}
      </section>
      <Ended />
    </>
  );
}

function Live(props: { readonly rows: readonly (readonly [string, ReservationRow])[] }) {
  return (
    <div class="scrolled" role="group" aria-label="Live reservations" tabIndex={0}>
      <table>
        <thead>
          <tr>
            <th scope="col">Pod</th>
            <th scope="col">Pool</th>
            <th scope="col" class="number">
              Units
            </th>
            <th scope="col">Node</th>
            <th scope="col">Time left</th>
          </tr>
        </thead>
        <tbody>
          {props.rows.map(([id, row]) => (
            <tr key={id} data-reservation={id}>
              <th scope="row">{podText(row)}</th>
              <td>
                <PoolName name={row.pool} />
              </td>
              <td class="number">{countText(row.units)}</td>
              <td>
                <NodeName name={row.node} />
              </td>
              <td class="bar-column">
                <TimeLeft row={row} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Ended() {
  const rows = ended.value;
  const counts = new Map<string, number>();
  for (const [, row] of rows) counts.set(row.end, (counts.get(row.end) ?? 0) + 1);
  const summary = [...counts].map(([end, count]) => `${countText(count)} ${ENDS[end] ?? end}`).join(", ");
  return (
    <section aria-labelledby="ended-title">
      <h2 id="ended-title">
        Ended <span class="dim">{summary}</span>
      </h2>
      <p class="dim">
        The last 200 of the last hour, known since <ClockTime at={store.origin.value?.since} />.
      </p>
      {rows.length === 0 ? (
        <Empty title="None has ended since then" />
      ) : (
        <div class="scrolled" role="group" aria-label="Ended reservations" tabIndex={0}>
          <table>
            <thead>
              <tr>
                <th scope="col">At</th>
                <th scope="col">How</th>
                <th scope="col">Pod</th>
                <th scope="col">Pool</th>
                <th scope="col" class="number">
                  Units
                </th>
                <th scope="col">Node</th>
              </tr>
            </thead>
            <tbody>
              {rows.map(([id, row]) => (
                <tr key={id} data-ended={id}>
                  <td>
                    <ClockTime at={row.at} />
                  </td>
                  <td>
                    <span class={`state ${row.end === "bound" ? "good" : "warning"}`}>{ENDS[row.end] ?? row.end}</span>
                  </td>
                  <th scope="row">{podText(row)}</th>
                  <td>
                    <PoolName name={row.pool} />
                  </td>
                  <td class="number">{countText(row.units)}</td>
                  <td>
                    <NodeName name={row.node} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}
