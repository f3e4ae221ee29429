/** All that is known of one device. */

import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { Age } from "../parts/Age.tsx";
import { Decision } from "../parts/Decision.tsx";
import { Icon } from "../parts/Icon.tsx";
import { LookMark } from "../parts/LookMark.tsx";
import { HolderName } from "../parts/NodeName.tsx";
import { PoolName } from "../parts/PoolName.tsx";
import { UnitBar } from "../parts/UnitBar.tsx";
import type { ConditionEntry, DeviceDetail, DeviceRow, HolderEntry, LinkEntry } from "../rows.ts";
import { choices } from "../state/address.ts";
import { type Answer, useAnswer } from "../state/answer.ts";
import { now } from "../state/clock.ts";
import { store } from "../state/store.ts";
import { counted, countText, durationText, momentMs } from "../text/format.ts";
import { deviceText } from "../text/words.ts";

export function DevicePanel(props: { readonly name: string }) {
  const { name } = props;
  const heading = useRef<HTMLHeadingElement>(null);
  const row = store.peek("devices").get(name);
  const version = store.nodeVersion(row?.node ?? "").value;
  const namespace = choices.namespace.value;
  const query = namespace ? `?namespace=${encodeURIComponent(namespace)}` : "";
  const answer = useAnswer<DeviceDetail>(
    `api/v1/devices/${encodeURIComponent(name)}${query}`,
    `${version} ${JSON.stringify(row)}`,
  );
  useEffect(() => {
    heading.current?.focus({ preventScroll: true });
    return () => giveFocusBack(name);
  }, [name]);
  return (
    <section class="panel" aria-labelledby="device-title">
      <div class="panel-head">
        <h2 id="device-title" tabIndex={-1} ref={heading}>
          {row === undefined ? name : `${row.node} ${row.address}`}
        </h2>
        <button
          type="button"
          class="quiet"
          aria-label="Close the device"
          title="Close (Esc)"
          onClick={() => (choices.device.value = "")}
        >
          <Icon name="close" />
        </button>
      </div>
      {row === undefined ? <p>There is no such device any more.</p> : <Now row={row} />}
      <Known answer={answer.value} />
    </section>
  );
}

/** Where the panel that had the focus is gone, its device's cell has it. */
function giveFocusBack(name: string): void {
  requestAnimationFrame(() => {
    if (document.activeElement !== document.body) return;
    document.querySelector<HTMLElement>(`[data-device="${CSS.escape(name)}"]`)?.focus({ preventScroll: true });
  });
}

function Now(props: { readonly row: DeviceRow }) {
  const { row } = props;
  const units = row.units ?? 0;
  const free = units - (row.used ?? 0) - (row.reserved ?? 0);
  return (
    <>
      <p class="panel-look">
        <LookMark look={row.look} /> {deviceText(row)}{" "}
        {row.pool && (
          <>
            in pool <PoolName name={row.pool} />
          </>
        )}
      </p>
      {units > 1 && <UnitBar figures={{ used: row.used ?? 0, reserved: row.reserved ?? 0, free }} total={units} />}
    </>
  );
}

function Known(props: { readonly answer: Answer<DeviceDetail> }) {
  const { answer } = props;
  if (answer.kind === "asked") return <p class="dim">Reading …</p>;
  if (answer.kind === "refused") return <p class="refusal">{answer.why}</p>;
  const detail = answer.value;
  return (
    <>
      <Holders holders={detail.holders ?? []} row={detail.row} />
      <Conditions conditions={detail.conditions ?? []} />
      {detail.assignment && store.origin.value?.viewer.canDecide === true && (
        <Decision device={detail.name} choices={[null]} />
      )}
      <h3>Device</h3>
      <dl class="facts">
        <Fact name="Name">
          <code>{detail.name}</code>
        </Fact>
        {detail.row.product && <Fact name="Product">{detail.row.product}</Fact>}
        {detail.uuid && (
          <Fact name="UUID">
            <code>{detail.uuid}</code>
          </Fact>
        )}
        {detail.memoryMib !== undefined && <Fact name="Memory">{countText(detail.memoryMib)} MiB</Fact>}
        {detail.computeCapability && <Fact name="Compute">{detail.computeCapability}</Fact>}
        {detail.numaNode !== undefined && <Fact name="NUMA node">{detail.numaNode}</Fact>}
        {detail.assignment && <Fact name="Approved for">{detail.assignment}</Fact>}
        {detail.mig && <Fact name="MIG">{detail.mig}</Fact>}
        {detail.lastXid !== undefined && (
          <Fact name="Last Xid">
            {detail.lastXid}, <Age since={detail.lastXidAt} /> ago
          </Fact>
        )}
      </dl>
      <Links links={detail.links ?? []} />
    </>
  );
}

function Fact(props: { readonly name: string; readonly children: ComponentChildren }) {
  return (
    <div>
      <dt>{props.name}</dt>
      <dd>{props.children}</dd>
    </div>
  );
}

function Holders(props: { readonly holders: readonly HolderEntry[]; readonly row: DeviceRow }) {
  const { holders, row } = props;
  const taken = (row.used ?? 0) + (row.reserved ?? 0);
  const seen = holders.reduce((sum, holder) => sum + holder.units, 0);
  if (holders.length === 0 && taken === 0) return null;
  return (
    <>
      <h3>Held by</h3>
      <ul class="holders">
        {holders.map((holder, place) => (
          <li key={`${holder.pod} ${place}`}>
            <span class="holder">{holder.pod ? <HolderName name={holder.pod} /> : "a pod that you may not see"}</span>
            <span class="dim">
              {counted(holder.units, "unit")}
              {holder.isReserved ? ", reserved" : ""}
              <Left expires={holder.expires} />
              {holder.created && (
                <>
                  , for <Age since={holder.created} />
                </>
              )}
            </span>
          </li>
        ))}
        {seen < taken && <li class="dim">{counted(taken - seen, "unit")} of pods that you may not see</li>}
      </ul>
    </>
  );
}

function Left(props: { readonly expires: string | undefined }) {
  const at = momentMs(props.expires);
  return at === null ? null : <> for another {durationText((at - now.value) / 1000)}</>;
}

function Conditions(props: { readonly conditions: readonly ConditionEntry[] }) {
  if (props.conditions.length === 0) return null;
  return (
    <>
      <h3>Conditions</h3>
      <ul class="conditions">
        {props.conditions.map((condition) => (
          <li key={condition.type}>
            <span class="condition-type">
              {condition.type}: {condition.status}
            </span>
            {condition.since && (
              <span class="dim">
                {" "}
                for <Age since={condition.since} />
              </span>
            )}
            {(condition.reason || condition.message) && (
              <span class="under">{[condition.reason, condition.message].filter(Boolean).join(": ")}</span>
            )}
          </li>
        ))}
      </ul>
    </>
  );
}

function Links(props: { readonly links: readonly LinkEntry[] }) {
  if (props.links.length === 0) return null;
  const kinds = new Map<string, string[]>();
  for (const link of props.links) kinds.set(link.kind, [...(kinds.get(link.kind) ?? []), link.peer]);
  return (
    <>
      <h3>Links</h3>
      {[...kinds].map(([kind, peers]) => (
        <p key={kind} class="links">
          {kind}:{" "}
          {peers.map((peer) => (
            <Peer key={peer} name={peer} />
          ))}
        </p>
      ))}
    </>
  );
}

function Peer(props: { readonly name: string }) {
  const row = store.peek("devices").get(props.name);
  if (row === undefined) return <code>{props.name}</code>;
  return (
    <button type="button" class="link" onClick={() => (choices.device.value = props.name)}>
      <code>{row.address}</code>
    </button>
  );
}
