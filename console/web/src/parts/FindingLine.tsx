/** A finding: its object, what is wrong, and what to do. */

import type { HealthRow } from "../rows.ts";
import { choices } from "../state/address.ts";
import { subjectOf } from "../state/findings.ts";
import { HEALTH_WORDS } from "../text/words.ts";
import { store } from "../state/store.ts";
import { Decision } from "./Decision.tsx";
import { NodeName } from "./NodeName.tsx";
import { PoolName } from "./PoolName.tsx";

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
        {row.pools !== undefined && store.origin.value?.viewer.canDecide === true && (
          <Decision device={subjectOf(subject).name} choices={row.pools} />
        )}
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
