/** The name of a pool, which chooses it. */

import { choices } from "../state/address.ts";

export function PoolName(props: { readonly name: string }) {
  const { name } = props;
  if (name === "") return <span class="dim">in no pool</span>;
  return (
    <button type="button" class="link" title={`Show pool ${name} alone`} onClick={() => (choices.pool.value = name)}>
      {name}
    </button>
  );
}
