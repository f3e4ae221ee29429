/** What colours and shapes mean, how many devices look so, and the choice of some. */

import { LookMark } from "../parts/LookMark.tsx";
import { choices } from "../state/address.ts";
import { store } from "../state/store.ts";
import { byName, countText } from "../text/format.ts";
import { LOOKS } from "../text/words.ts";

export function Legend() {
  void store.versions.grid.value;
  const counts = store.index.looksIn(choices.pool.value);
  const further = [...counts.keys()].filter((look) => !LOOKS.some((known) => known === look));
  return (
    <div class="legend" role="group" aria-label="Looks of devices">
      {[...LOOKS, ...further].map((look) => (
        <LookChoice key={look} look={look} count={counts.get(look) ?? 0} />
      ))}
    </div>
  );
}

function LookChoice(props: { readonly look: string; readonly count: number }) {
  const { look, count } = props;
  const isChosen = choices.look.value === look;
  return (
    <button
      type="button"
      class={`look ${count === 0 ? "none" : ""}`}
      aria-pressed={isChosen}
      title={isChosen ? "Show all looks" : `Show what is ${look} alone`}
      onClick={() => (choices.look.value = isChosen ? "" : look)}
    >
      <LookMark look={look} /> {look} <span class="number">{countText(count)}</span>
    </button>
  );
}

export function ProductChoice() {
  void store.versions.grid.value;
  const products = [...store.index.products().keys()].filter(Boolean).sort(byName);
  if (products.length < 2 && choices.product.value === "") return null;
  return (
    <label class="choice">
      Product{" "}
      <select value={choices.product.value} onChange={(event) => (choices.product.value = event.currentTarget.value)}>
        <option value="">all</option>
        {products.map((product) => (
          <option key={product} value={product}>
            {product}
          </option>
        ))}
      </select>
    </label>
  );
}
