/** A row for each pool: how much of it is used, what still fits, what waits, and whether it is well. */

import { useSignal } from "@preact/signals";
import { Empty } from "../parts/Empty.tsx";
import { loaded } from "../parts/loaded.tsx";
import { UnitBar } from "../parts/UnitBar.tsx";
import type { PoolRow } from "../rows.ts";
import { choices } from "../state/address.ts";
import { poolNames, store } from "../state/store.ts";
import { counted, countText } from "../text/format.ts";

export const FIT_SIZES = [1, 2, 4, 8] as const;

/** Of more pools than fit above the views, the first ones are shown, and the chosen one. */
const MANY = 8;
const FEW = 5;

/** Draws a chart, which takes a third of the page's script. */
const PoolDetail = loaded(async () => (await import("./PoolDetail.tsx")).PoolDetail);

export function Pools() {
  const names = poolNames.value;
  const all = useSignal(false);
  if (names.length === 0) {
    return (
      <section class="pools" aria-labelledby="pools-title">
        <h2 id="pools-title">Pools</h2>
        <Empty title="There is no pool yet">
          A GPUPool offers devices under one resource name. <code>docs/quick-start.md</code> makes the first one.
        </Empty>
      </section>
    );
  }
  const chosen = choices.pool.value;
  const shown =
    all.value || names.length <= MANY ? names : names.filter((name, place) => place < FEW || name === chosen);
  return (
    <section class="pools" aria-labelledby="pools-title">
      <h2 id="pools-title">Pools</h2>
      <table role="table">
        <Head />
        <tbody role="rowgroup">
          {shown.map((name) => (
            <Pool key={name} name={name} />
          ))}
        </tbody>
      </table>
      {shown.length < names.length && (
        <p class="more">
          <button type="button" onClick={() => (all.value = true)}>
            Show all {countText(names.length)} pools
          </button>
        </p>
      )}
      {chosen !== "" && !names.includes(chosen) && <Empty title={`There is no pool ${chosen}`} />}
      {names.includes(chosen) && <PoolDetail key={chosen} name={chosen} />}
    </section>
  );
}

function Head() {
  return (
    <thead role="rowgroup">
      <tr role="row">
        <th role="columnheader" scope="col">
          Pool
        </th>
        <th role="columnheader" scope="col">
          Units
        </th>
        <Figure title="Units of pods">Used</Figure>
        <Figure title="Units that wait for their pods">Reserved</Figure>
        <Figure title="Units that a pod may have now">Free</Figure>
        <Figure title="Free units of devices and nodes that take no pods now">Withheld</Figure>
        <Figure title="Most units that are free on one node">Largest</Figure>
        <Figure title="Pods that wait for units">Waiting</Figure>
        <Figure title="How many pods of 1, 2, 4 and 8 units would be placed now, one size at a time">
          Fits 1 / 2 / 4 / 8
        </Figure>
        <th role="columnheader" scope="col">
          Phase
        </th>
      </tr>
    </thead>
  );
}

function Figure(props: { readonly title: string; readonly children: string | readonly string[] }) {
  return (
    <th role="columnheader" scope="col" class="number" title={props.title}>
      {props.children}
    </th>
  );
}

function Pool(props: { readonly name: string }) {
  const { name } = props;
  const row = store.rows("pools").get(name);
  if (row === undefined) return null;
  const isChosen = choices.pool.value === name;
  return (
    <tr role="row" class={isChosen ? "is-chosen" : ""} data-pool={name}>
      <th role="rowheader" scope="row">
        <button
          type="button"
          class="link"
          aria-pressed={isChosen}
          title={isChosen ? "Show all pools" : `Show ${name} alone`}
          onClick={() => (choices.pool.value = isChosen ? "" : name)}
        >
          {name}
        </button>
        <span class="under">
          {row.mode}, {counted(row.nodes ?? 0, "node")}
        </span>
      </th>
      <td role="cell" class="units">
        <UnitBar figures={row} total={row.total ?? 0} />
      </td>
      <Count of="used" count={row.used} />
      <Count of="reserved" count={row.reserved} />
      <Count of="free" count={row.free} />
      <Count of="withheld" count={row.withheld} />
      <Count of="largest" count={row.largestFree} />
      <Count of="waiting" count={row.waiting} isLoud />
      <td role="cell" class="number fits" data-of="fits" data-label="fits 1 / 2 / 4 / 8:">
        {fitsText(row)}
      </td>
      <td role="cell" class="phase">
        <Phase row={row} />
      </td>
    </tr>
  );
}

function Count(props: { readonly of: string; readonly count: number | undefined; readonly isLoud?: boolean }) {
  const count = props.count ?? 0;
  const tone = count === 0 ? "none" : props.isLoud ? "loud" : "";
  return (
    <td role="cell" class={`number ${tone}`} data-of={props.of} data-label={props.of}>
      {countText(count)}
    </td>
  );
}

function Phase(props: { readonly row: PoolRow }) {
  const { row } = props;
  const isWell = row.phase === "Ready";
  return (
    <>
      <span class={`state ${isWell ? "good" : "warning"}`}>{row.phase}</span>
      {row.why && <span class="under">{row.why}</span>}
      {row.access && (
        <span class="under cut" title={row.access}>
          For {row.access}
        </span>
      )}
    </>
  );
}

/** Return how many pods of each size fit, where that is known. */
export function fitsText(row: PoolRow): string {
  const { fits } = row;
  if (fits === undefined) return "not known";
  return FIT_SIZES.map((size) => countText(fits[size] ?? 0)).join(" / ");
}
