/** Whose pods are seen, and the choice of another namespace where there is one. */

import { useSignal } from "@preact/signals";
import type { ViewerRow } from "../rows.ts";
import { choices } from "../state/address.ts";
import { bearer, useToken } from "../state/login.ts";
import { store } from "../state/store.ts";

const LIST_ID = "namespaces";

export function NamespaceChoice(props: { readonly viewer: ViewerRow }) {
  const { viewer } = props;
  return (
    <div class="viewer">
      {viewer.name && <span title="Who you are for the cluster">{viewer.name}</span>}
      {viewer.canChooseNamespace ? <Choice namespace={viewer.namespace ?? ""} /> : <Seen viewer={viewer} />}
      {bearer.value !== "" && (
        <button type="button" class="link" onClick={() => useToken("", false)}>
          Log out
        </button>
      )}
    </div>
  );
}

function Seen(props: { readonly viewer: ViewerRow }) {
  const { allNamespaces, namespace } = props.viewer;
  const text = allNamespaces ? "all namespaces" : namespace ? `namespace ${namespace}` : "no pods";
  return <span title="Namespaces whose pods you see">{text}</span>;
}

function Choice(props: { readonly namespace: string }) {
  const typed = useSignal<string | null>(null);
  const known = new Set([...store.rows("shares").values()].map((share) => share.namespace));
  return (
    <form
      class="namespace"
      onSubmit={(event) => {
        event.preventDefault();
        const chosen = (typed.value ?? props.namespace).trim();
        typed.value = null;
        choices.namespace.value = chosen;
      }}
    >
      <label>
        Namespace
        <input
          list={LIST_ID}
          autocomplete="off"
          spellcheck={false}
          size={14}
          value={typed.value ?? props.namespace}
          onInput={(event) => (typed.value = event.currentTarget.value)}
        />
      </label>
      <datalist id={LIST_ID}>
        {[...known].sort().map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
      {typed.value !== null && <button type="submit">Show</button>}
    </form>
  );
}
