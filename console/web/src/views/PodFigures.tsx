/** The nodes of a waiting pod's pool: what is free there, who has the rest, why it is not enough. */

import { NodeName } from "../parts/NodeName.tsx";
import { UnitBar } from "../parts/UnitBar.tsx";
import type { HolderEntry, NodeFigures, PodDetail, WaitingRow } from "../rows.ts";
import { useAnswer } from "../state/answer.ts";
import { counted, countText } from "../text/format.ts";

const MOST_HOLDERS = 3;

export function PodFigures(props: { readonly name: string; readonly row: WaitingRow }) {
  const { name, row } = props;
  const path = `api/v1/pods/${name.split("/").map(encodeURIComponent).join("/")}`;
  const answer = useAnswer<PodDetail>(path, row).value;
  if (answer.kind === "asked") return <p class="dim">Reading …</p>;
  if (answer.kind === "refused") return <p class="refusal">{answer.why}</p>;
  const nodes = answer.value.nodes ?? [];
  if (nodes.length === 0) return null;
  const further = (answer.value.nodesTotal ?? nodes.length) - nodes.length;
  return (
    <div class="scrolled" role="group" aria-label={`Nodes for ${name}`} tabIndex={0}>
      <table>
        <thead>
          <tr>
            <th scope="col">Node</th>
            <th scope="col" class="number">
              Free
            </th>
            <th scope="col" class="bar-column">
              Units
            </th>
            <th scope="col">Held by</th>
            <th scope="col">Because</th>
          </tr>
        </thead>
        <tbody>
          {nodes.map((node) => (
            <Node key={node.node} figures={node} />
          ))}
        </tbody>
      </table>
      {further > 0 && <p class="dim">and {counted(further, "further node")} with no more free units</p>}
    </div>
  );
}

function Node(props: { readonly figures: NodeFigures }) {
  const { figures } = props;
  const holders = figures.holders ?? [];
  return (
    <tr>
      <th scope="row">
        <NodeName name={figures.node} />
      </th>
      <td class="number">{countText(figures.free ?? 0)}</td>
      <td>
        <UnitBar figures={figures} total={figures.total ?? 0} />
      </td>
      <td>
        {holders.slice(0, MOST_HOLDERS).map(holderText).join(", ")}
        {holders.length > MOST_HOLDERS && ` and ${holders.length - MOST_HOLDERS} more`}
      </td>
      <td>{figures.because || "takes the pod"}</td>
    </tr>
  );
}

function holderText(holder: HolderEntry): string {
  const name = holder.pod || "a pod that you may not see";
  return `${name} (${holder.units}${holder.isReserved ? " reserved" : ""})`;
}
