/** Shown in place of everything where the console does not know the viewer. */

import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { bearer, useToken } from "../state/login.ts";
import { connectAgain } from "../state/link.ts";
import type { Refused } from "../stream/connection.ts";

export function Login(props: { readonly refused: Refused }) {
  const { asksForToken, isKnown, why } = props.refused;
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => heading.current?.focus(), []);
  return (
    <main class="login" id="main" tabIndex={-1}>
      <h2 tabIndex={-1} ref={heading}>
        {isKnown ? "You may not see this cluster's GPUs" : asksForToken ? "Who are you?" : "This page is not logged in"}
      </h2>
      {isKnown && (
        <p role="alert" class="refusal">
          {sentence(why)}
        </p>
      )}
      {asksForToken ? <TokenForm why={isKnown ? "" : why} /> : <StartAgain why={isKnown ? "" : why} />}
    </main>
  );
}

function StartAgain(props: { readonly why: string }) {
  return (
    <>
      <p>
        The address that opens the console works once, for one browser. Start it again, and open the address that it
        prints:
      </p>
      <pre>
        <code>kubectl gpu console</code>
      </pre>
      {props.why && <p class="dim">{sentence(props.why)}</p>}
      <p>
        <button type="button" onClick={connectAgain}>
          Try again
        </button>
      </p>
    </>
  );
}

function TokenForm(props: { readonly why: string }) {
  const token = useSignal("");
  const lasts = useSignal(true);
  const wasRefused = bearer.value !== "" && props.why !== "";
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        const given = token.value.trim();
        if (given === bearer.value) connectAgain();
        else if (given !== "") useToken(given, lasts.value);
      }}
    >
      <p>
        The console shows what you may see in the cluster, and asks the API server with a token of yours. Make one for a
        service account, for instance:
      </p>
      <pre>
        <code>kubectl create token NAME --namespace NAMESPACE --duration 8h</code>
      </pre>
      <p class="field">
        <label for="token">Token</label>
        <input
          id="token"
          type="password"
          autocomplete="off"
          spellcheck={false}
          required
          aria-describedby={wasRefused ? "token-refused" : undefined}
          aria-invalid={wasRefused}
          value={token.value}
          onInput={(event) => (token.value = event.currentTarget.value)}
        />
      </p>
      {wasRefused && (
        <p id="token-refused" role="alert" class="refusal">
          {sentence(props.why)}
        </p>
      )}
      <p>
        <label class="check">
          <input
            type="checkbox"
            checked={lasts.value}
            onChange={(event) => (lasts.value = event.currentTarget.checked)}
          />
          Keep it until this tab is closed, also when the page is loaded again
        </label>
      </p>
      <p>
        <button type="submit" class="primary">
          Log in
        </button>
      </p>
      <p class="dim">It stays in this tab, and is sent to this console alone.</p>
    </form>
  );
}

function sentence(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}${text.endsWith(".") ? "" : "."}`;
}
