/** What is wrong and what to do, the worst first. */

import { Empty } from "../parts/Empty.tsx";
import { FindingLine } from "../parts/FindingLine.tsx";
import { Portion } from "../parts/Portion.tsx";
import { choices } from "../state/address.ts";
import { type Finding, findings, WORST_FIRST } from "../state/findings.ts";
import { countText } from "../text/format.ts";

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

function summaryText(found: readonly Finding[]): string {
  return WORST_FIRST.map((state) => [state, found.filter(([, row]) => row.state === state).length] as const)
    .filter(([, count]) => count > 0)
    .map(([state, count]) => `${countText(count)} ${state}`)
    .join(", ");
}
