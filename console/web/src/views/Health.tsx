/** What is wrong and what to do, the worst first. */

import { computed, type ReadonlySignal } from "@preact/signals";
import { Empty } from "../parts/Empty.tsx";
import { NodeName } from "../parts/NodeName.tsx";
import { PoolName } from "../parts/PoolName.tsx";
import { Portion } from "../parts/Portion.tsx";
import type { HealthRow, RowHealth } from "../rows.ts";
import { choices } from "../state/address.ts";
import { store } from "../state/store.ts";
import { byName, countText } from "../text/format.ts";
import { HEALTH_WORDS } from "../text/words.ts";

export type Finding = readonly [subject: string, row: HealthRow];

const WORST_FIRST: readonly RowHealth[] = ["bad", "warning", "good"];

/** All findings about the chosen pool, its nodes and devices, and those about no pool; the worst first. */
export const findings: ReadonlySignal<readonly Finding[]> = computed(() => {
  const pool = choices.pool.value;
  return [...store.rows("health")]
    .filter(([subject]) => pool === "" || isAbout(subject, pool))
    .sort(([a, x], [b, y]) => WORST_FIRST.indexOf(x.state) - WORST_FIRST.indexOf(y.state) || byName(a, b));
});

function isAbout(subject: string, pool: string): boolean {
  const { kind, name } = subjectOf(subject);
  switch (kind) {
    case "GPUPool":
      return name === pool;
    case "GPUDevice":
      return store.peek("devices").get(name)?.pool === pool;
    case "Node":
    case "GPUNodeInventory":
      return store.peek("nodes").get(name)?.pools?.includes(pool) ?? false;
    default:
      return true;
  }
}

/** Return the object that a finding is about: its kind and name are its subject. */
function subjectOf(subject: string): { readonly kind: string; readonly name: string } {
  const [kind = "", name = ""] = subject.split(" ", 2);
  return { kind, name };
}

export function Health() {
  const text = choices.text.value.trim().toLowerCase();
  const found = findings.value.filter(([subject, row]) => `${subject} ${row.text}`.toLowerCase().includes(text));
  return (
    <section aria-labelledby="health-title">
      <h2 id="health-title">
        Health <span class="dim">{summaryText(found)}</span>
      </h2>
      {found.length === 0 && (
        <Empty title="Nothing to say">
          What is found about the control plane, pools, nodes and devices is listed here.
        </Empty>
      )}
      <Portion rows={found} noun="finding">
        {(rows) => (
          <ul class="findings">
            {rows.map(([subject, row]) => (
              <FindingLine key={subject} subject={subject} row={row} />
            ))}
          </ul>
        )}
      </Portion>
    </section>
  );
}

export function FindingLine(props: { readonly subject: string; readonly row: HealthRow }) {
  const { subject, row } = props;
  return (
    <li class="finding" data-finding={subject} data-state={row.state}>
      <span class={`state ${row.state}`}>{HEALTH_WORDS[row.state] ?? row.state}</span>
      <div>
        <p>
          <Subject subject={subject} /> {row.text}
        </p>
        {row.cure && <p class="remedy">{row.cure}</p>}
      </div>
    </li>
  );
}

function Subject(props: { readonly subject: string }) {
  const { kind, name } = subjectOf(props.subject);
  switch (kind) {
    case "GPUPool":
      return (
        <span class="subject">
          {kind} <PoolName name={name} />
        </span>
      );
    case "GPUDevice":
      return (
        <span class="subject">
          {kind}{" "}
          <button type="button" class="link" onClick={() => (choices.device.value = name)}>
            {name}
          </button>
        </span>
      );
    case "Node":
    case "GPUNodeInventory":
      return (
        <span class="subject">
          {kind} <NodeName name={name} />
        </span>
      );
    default:
      return <span class="subject">{props.subject}</span>;
  }
}

function summaryText(found: readonly Finding[]): string {
  return WORST_FIRST.map((state) => [state, found.filter(([, row]) => row.state === state).length] as const)
    .filter(([, count]) => count > 0)
    .map(([state, count]) => `${countText(count)} ${state}`)
    .join(", ");
}
