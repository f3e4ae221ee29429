/** A question: would these pods be placed now? Asked of the code that places pods, on a copy. */

import { signal, useSignal } from "@preact/signals";
import { Empty } from "../parts/Empty.tsx";
import { Icon } from "../parts/Icon.tsx";
import { NodeName } from "../parts/NodeName.tsx";
import type { WhatIfAnswer } from "../rows.ts";
import { choices } from "../state/address.ts";
import { type Answer, answered } from "../state/answer.ts";
import { poolNames, store } from "../state/store.ts";
import { counted, countText } from "../text/format.ts";

const MOST_OFFERED = 50;

const asked = {
  pool: signal(""),
  units: signal("1"),
  times: signal("1"),
  cordoned: signal<readonly string[]>([]),
};
const answer = signal<Answer<WhatIfAnswer> | null>(null);
const isBusy = signal(false);

export function WhatIf() {
  const names = poolNames.value;
  if (names.length === 0) return <Empty title="There is no pool to ask about" />;
  const pool = [asked.pool.value, choices.pool.value].find((name) => names.includes(name)) ?? names[0] ?? "";
  return (
    <section class="what-if" aria-labelledby="what-if-title">
      <h2 id="what-if-title">Would it fit?</h2>
      <p class="dim">Pods are placed one after the other on what is free now, and taken back. Nothing is written.</p>
      {store.origin.value?.viewer.allNamespaces === false && (
        <p class="refusal">You may not list pods of all namespaces: an answer would be a guess, and is refused.</p>
      )}
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void put(pool);
        }}
      >
        <div class="fields">
          <p class="field">
            <label for="what-if-pool">Pool</label>
            <select id="what-if-pool" value={pool} onChange={(event) => (asked.pool.value = event.currentTarget.value)}>
              {names.map((name) => (
                <option key={name} value={name}>
                  {name}
                </option>
              ))}
            </select>
          </p>
          <NumberField id="what-if-units" label="Units of a pod" value={asked.units} />
          <NumberField id="what-if-times" label="Pods" value={asked.times} />
          <Cordon />
          <p class="field go">
            <button type="submit" class="primary" disabled={isBusy.value}>
              Try
            </button>
          </p>
        </div>
      </form>
      <div role="status" class="answer">
        {answer.value !== null && <Said answer={answer.value} />}
      </div>
    </section>
  );
}

async function put(pool: string): Promise<void> {
  const query = new URLSearchParams({ pool, units: asked.units.value, times: asked.times.value });
  for (const node of asked.cordoned.value) query.append("cordon", node);
  isBusy.value = true;
  answer.value = await answered<WhatIfAnswer>(`api/v1/what-if?${query}`, new AbortController().signal);
  isBusy.value = false;
}

function NumberField(props: { readonly id: string; readonly label: string; readonly value: { value: string } }) {
  return (
    <p class="field">
      <label for={props.id}>{props.label}</label>
      <input
        id={props.id}
        type="number"
        min={1}
        step={1}
        required
        value={props.value.value}
        onInput={(event) => (props.value.value = event.currentTarget.value)}
      />
    </p>
  );
}

function Cordon() {
  const typed = useSignal("");
  const text = typed.value.trim().toLowerCase();
  const offered = store.index.nodes().filter((node) => node.toLowerCase().includes(text));
  const add = (): void => {
    const node = store.index.nodes().find((one) => one === typed.value.trim());
    if (node === undefined) return;
    if (!asked.cordoned.value.includes(node)) asked.cordoned.value = [...asked.cordoned.value, node];
    typed.value = "";
  };
  return (
    <div class="field">
      <label for="what-if-cordon">As if cordoned</label>
      <span class="adding">
        <input
          id="what-if-cordon"
          list="what-if-nodes"
          autocomplete="off"
          spellcheck={false}
          placeholder="node"
          value={typed.value}
          onInput={(event) => (typed.value = event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key !== "Enter" || typed.value.trim() === "") return;
            event.preventDefault();
            add();
          }}
        />
        <button type="button" onClick={add}>
          Add
        </button>
      </span>
      <datalist id="what-if-nodes">
        {offered.slice(0, MOST_OFFERED).map((node) => (
          <option key={node} value={node} />
        ))}
      </datalist>
      {asked.cordoned.value.length > 0 && (
        <span class="chips">
          {asked.cordoned.value.map((node) => (
            <button
              key={node}
              type="button"
              class="chip"
              aria-label={`${node}: take away`}
              onClick={() => (asked.cordoned.value = asked.cordoned.value.filter((one) => one !== node))}
            >
              {node} <Icon name="close" />
            </button>
          ))}
        </span>
      )}
    </div>
  );
}

function Said(props: { readonly answer: Answer<WhatIfAnswer> }) {
  const { answer: said } = props;
  if (said.kind === "asked") return null;
  if (said.kind === "refused") return <p class="refusal">{said.why}</p>;
  const { fits = false, message, placed = [], remedies = [] } = said.value;
  return (
    <>
      <p class="verdict">
        <span class={`state ${fits ? "good" : "bad"}`}>{fits ? "It fits" : "It does not fit"}</span> {message}
      </p>
      {placed.length > 0 && (
        <div class="scrolled" role="group" aria-label="Where the pods would be" tabIndex={0}>
          <table class="rows-narrow">
            <thead>
              <tr>
                <th scope="col">Node</th>
                <th scope="col" class="number">
                  Pods
                </th>
                <th scope="col" class="number">
                  Units
                </th>
              </tr>
            </thead>
            <tbody>
              {placed.slice(0, MOST_OFFERED).map((one) => (
                <tr key={one.node}>
                  <th scope="row">
                    <NodeName name={one.node} />
                  </th>
                  <td class="number">{countText(one.pods)}</td>
                  <td class="number">{countText(one.units)}</td>
                </tr>
              ))}
            </tbody>
          </table>
          {placed.length > MOST_OFFERED && (
            <p class="dim">and {counted(placed.length - MOST_OFFERED, "further node")}</p>
          )}
        </div>
      )}
      {remedies.length > 0 && (
        <>
          <h3>What would help the first that is not placed</h3>
          {remedies.map((remedy) => (
            <p key={remedy} class="remedy">
              {remedy}
            </p>
          ))}
        </>
      )}
    </>
  );
}
