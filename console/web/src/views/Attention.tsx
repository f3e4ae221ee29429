/** Beside the grid: what needs somebody, in short. The views have all of it. */

import { computed, type ReadonlySignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { Age } from "../parts/Age.tsx";
import { FindingLine } from "../parts/FindingLine.tsx";
import { TimeLeft } from "../parts/TimeLeft.tsx";
import type { ReservationRow, WaitingRow } from "../rows.ts";
import { addressOf, choices, hrefOf, type View } from "../state/address.ts";
import { findings } from "../state/findings.ts";
import { store } from "../state/store.ts";
import { byText, counted, countText } from "../text/format.ts";
import { podText, reasonText } from "../text/words.ts";

const SHOWN = 5;

const longest: ReadonlySignal<readonly [string, WaitingRow][]> = computed(() =>
  firstBy(inPool(store.rows("waiting")), ([, a], [, b]) => byText(a.created, b.created)),
);

const soonest: ReadonlySignal<readonly [string, ReservationRow][]> = computed(() =>
  firstBy(inPool(store.rows("reservations")), ([, a], [, b]) => byText(a.expires || "~", b.expires || "~")),
);

function inPool<T extends { readonly pool: string }>(rows: ReadonlyMap<string, T>): [string, T][] {
  const pool = choices.pool.value;
  return [...rows].filter(([, row]) => pool === "" || row.pool === pool);
}

function firstBy<T>(rows: T[], compare: (a: T, b: T) => number): readonly T[] {
  return rows.sort(compare).slice(0, SHOWN);
}

export function Attention() {
  const wrong = findings.value.filter(([, row]) => row.state !== "good");
  const waiting = inPool(store.rows("waiting")).length;
  const reserved = inPool(store.rows("reservations")).length;
  return (
    <>
      <Card title="Waiting longest" view="waiting" all={waiting} noun="pod" nothing="No pod waits.">
        <ul class="short-list">
          {longest.value.map(([key, row]) => (
            <li key={key}>
              <p class="short-line">
                <a class="holder" href={addressOf("waiting", { text: key })}>
                  {key}
                </a>
                <Age since={row.created} />
              </p>
              <p class="dim">
                {counted(row.units, "unit")} of {row.pool}. {reasonText(row.reason)}
              </p>
            </li>
          ))}
        </ul>
      </Card>
      <Card title="Worth a look" view="health" all={wrong.length} noun="finding" nothing="All is well.">
        <ul class="findings">
          {wrong.slice(0, SHOWN).map(([subject, row]) => (
            <FindingLine key={subject} subject={subject} row={row} />
          ))}
        </ul>
      </Card>
      <Card title="Reserved" view="reservations" all={reserved} noun="reservation" nothing="No unit waits for its pod.">
        <ul class="short-list">
          {soonest.value.map(([id, row]) => (
            <li key={id}>
              <p class="short-line">
                <span class="holder">{podText(row)}</span>
                <span class="dim">{counted(row.units, "unit")}</span>
              </p>
              <TimeLeft row={row} />
            </li>
          ))}
        </ul>
      </Card>
    </>
  );
}

function Card(props: {
  readonly title: string;
  readonly view: View;
  readonly all: number;
  readonly noun: string;
  readonly nothing: string;
  readonly children: ComponentChildren;
}) {
  const { title, all } = props;
  const id = `card-${props.view}`;
  return (
    <section class="card" aria-labelledby={id}>
      <h2 id={id}>
        {title} {all > 0 && <span class="dim">{countText(all)}</span>}
      </h2>
      {all === 0 ? <p class="dim">{props.nothing}</p> : props.children}
      {all > SHOWN && (
        <p>
          <a href={hrefOf(props.view)}>All {counted(all, props.noun)}</a>
        </p>
      )}
    </section>
  );
}
