/** The chosen pool: its last hour, and what it is. */

import { store } from "../state/store.ts";
import { PoolChart } from "./PoolChart.tsx";

export function PoolDetail(props: { readonly name: string }) {
  const row = store.rows("pools").get(props.name);
  if (row === undefined) return null;
  return (
    <section class="pool-detail" aria-label={`Pool ${props.name}`}>
      <PoolChart name={props.name} />
      <dl class="facts">
        <div>
          <dt>Resource</dt>
          <dd>
            <code>{row.resource}</code>
          </dd>
        </div>
        <div>
          <dt>Mode</dt>
          <dd>{row.mode}</dd>
        </div>
        <div>
          <dt>Strategy</dt>
          <dd>{row.strategy}</dd>
        </div>
        <div>
          <dt>Open to</dt>
          <dd>{row.access || "everybody"}</dd>
        </div>
      </dl>
    </section>
  );
}
