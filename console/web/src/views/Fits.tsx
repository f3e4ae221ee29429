/** How many pods of each size still fit, and how many free units no such pod can have. */

import { computed } from "@preact/signals";
import { Empty } from "../parts/Empty.tsx";
import { PoolName } from "../parts/PoolName.tsx";
import type { PoolRow } from "../rows.ts";
import { choices } from "../state/address.ts";
import { now } from "../state/clock.ts";
import { poolNames, store } from "../state/store.ts";
import { counted, countText } from "../text/format.ts";
import { nodesByFreeUnits, STEPS, stranded } from "./freeUnits.ts";
import { FIT_SIZES } from "./Pools.tsx";

/** All devices are looked at: once a second, and not with each change. */
const nodeCounts = computed(() => {
  void now.value;
  return nodesByFreeUnits(store.index, store.peek("nodes"));
});

export function Fits() {
  const chosen = choices.pool.value;
  const names = poolNames.value.filter((name) => chosen === "" || name === chosen);
  if (names.length === 0) return <Empty title="There is no pool to look at" />;
  return (
    <>
      <Sizes names={names} />
      <Spread names={names} />
    </>
  );
}

function Sizes(props: { readonly names: readonly string[] }) {
  const pools = store.rows("pools");
  const isKnown = props.names.some((name) => pools.get(name)?.fits !== undefined);
  return (
    <section aria-labelledby="fits-title">
      <h2 id="fits-title">What still fits</h2>
      <p class="dim">
        Pods that would be placed now, one size at a time, tried on a copy. Stranded units are free, and too few on each
        node for a pod of that size.
      </p>
      {!isKnown && (
        <Empty title="Not known">
          Where pods of all namespaces may not be listed, an answer would be a guess. <code>largest</code> above holds.
        </Empty>
      )}
      {isKnown && (
        <div class="scrolled" role="group" aria-label="Pods that fit, by size" tabIndex={0}>
          <table class="fits-table">
            <thead>
              <tr>
                <th scope="col">Pool</th>
                <th scope="col" class="number">
                  Free
                </th>
                <th scope="col" class="number">
                  Largest
                </th>
                {FIT_SIZES.map((size) => (
                  <th key={size} scope="col">
                    {counted(size, "unit")}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {props.names.map((name) => {
                const row = pools.get(name);
                return row && <Sized key={name} name={name} row={row} />;
              })}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

function Sized(props: { readonly name: string; readonly row: PoolRow }) {
  const { name, row } = props;
  return (
    <tr data-fits={name}>
      <th scope="row">
        <PoolName name={name} />
      </th>
      <td class="number">{countText(row.free ?? 0)}</td>
      <td class="number">{countText(row.largestFree ?? 0)}</td>
      {FIT_SIZES.map((size) => {
        const left = stranded(row, size);
        return (
          <td key={size} data-size={size}>
            {left === null ? (
              <span class="dim">not known</span>
            ) : (
              <>
                <span class="fit-count">{counted(row.fits?.[size] ?? 0, "pod")}</span>
                <span
                  class="bar small"
                  role="img"
                  aria-label={`${countText(left)} of ${countText(row.free ?? 0)} free units are stranded`}
                >
                  {(row.free ?? 0) > left && (
                    <span class="part fitting" style={{ flexGrow: `${(row.free ?? 0) - left}` }} />
                  )}
                  {left > 0 && <span class="part stranded" style={{ flexGrow: `${left}` }} />}
                </span>
                <span class={`under ${left === 0 ? "none" : ""}`}>{countText(left)} stranded</span>
              </>
            )}
          </td>
        );
      })}
    </tr>
  );
}

function Spread(props: { readonly names: readonly string[] }) {
  const shown = props.names.filter((name) => nodeCounts.value.has(name));
  if (shown.length === 0) return null;
  return (
    <section aria-labelledby="spread-title">
      <h2 id="spread-title">Nodes by free units</h2>
      <p class="dim">As the statuses of devices say; nodes that take no pods are not counted.</p>
      <div class="scrolled" role="group" aria-label="Nodes by free units" tabIndex={0}>
        <table class="spread-table">
          <thead>
            <tr>
              <th scope="col">Pool</th>
              {STEPS.map((_, step) => (
                <th key={step} scope="col">
                  {stepText(step)}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {shown.map((name) => {
              const steps = nodeCounts.value.get(name) ?? [];
              const most = Math.max(1, ...steps);
              return (
                <tr key={name}>
                  <th scope="row">
                    <PoolName name={name} />
                  </th>
                  {steps.map((count, step) => (
                    <td key={step} class={count === 0 ? "none" : ""}>
                      <span class="column" aria-hidden="true">
                        <span style={{ height: `${(100 * count) / most}%` }} />
                      </span>
                      {counted(count, "node")}
                    </td>
                  ))}
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function stepText(step: number): string {
  const fewest = STEPS[step] ?? 0;
  const next = STEPS[step + 1];
  if (next === undefined) return `${fewest} and more`;
  return next - 1 === fewest ? `${fewest}` : `${fewest} to ${next - 1}`;
}
