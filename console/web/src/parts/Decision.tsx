/** A decision on a device: a dry run, what would be written, and the confirmation. */

import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import type { DecisionAnswer } from "../rows.ts";
import { type Answer, answered } from "../state/answer.ts";
import { posted } from "../stream/questions.ts";

/** A pool that the device may join; null takes its approval away. */
type Choice = string | null;

export function Decision(props: { readonly device: string; readonly choices: readonly Choice[] }) {
  const { device, choices } = props;
  const answer = useSignal<Answer<DecisionAnswer> | null>(null);
  const pool = useSignal<Choice>(null);
  const isBusy = useSignal(false);

  const send = async (decision: { readonly version?: string; readonly isDry?: boolean }): Promise<void> => {
    isBusy.value = true;
    const body = posted({ device, pool: pool.value, ...decision });
    answer.value = await answered<DecisionAnswer>("api/v1/decisions", new AbortController().signal, body);
    isBusy.value = false;
  };
  const said = answer.value;
  const tried = said?.kind === "answered" && said.value.isDry ? said.value : null;
  return (
    <div class="decision">
      {tried === null ? (
        <p class="choices">
          {choices.map((choice) => (
            <button
              key={choice}
              type="button"
              aria-label={choice === null ? `Release ${device}` : `Approve ${device} for pool ${choice}`}
              disabled={isBusy.value}
              onClick={() => {
                pool.value = choice;
                void send({ isDry: true });
              }}
            >
              {choice === null ? "Release" : `Approve for pool ${choice}`}
            </button>
          ))}
        </p>
      ) : (
        <Confirmation
          tried={tried}
          isBusy={isBusy.value}
          onConfirm={() => void send({ version: tried.version })}
          onCancel={() => (answer.value = null)}
        />
      )}
      <div role="status">
        {said?.kind === "refused" && <p class="refusal">{said.why}</p>}
        {said?.kind === "answered" && !said.value.isDry && (
          <p>
            {said.value.device}: {said.value.text}
          </p>
        )}
      </div>
    </div>
  );
}

function Confirmation(props: {
  readonly tried: DecisionAnswer;
  readonly isBusy: boolean;
  readonly onConfirm: () => void;
  readonly onCancel: () => void;
}) {
  const { tried, isBusy, onConfirm, onCancel } = props;
  const cancel = useRef<HTMLButtonElement>(null);
  useEffect(() => cancel.current?.focus(), []);
  return (
    <div role="group" aria-label={`Confirm the decision on ${tried.device}`}>
      <p>
        GPUDevice {tried.device} of node {tried.node}: {tried.text}. With your rights this PATCH is written, which the API
        server accepts:
      </p>
      <pre>
        <code>{tried.patch}</code>
      </pre>
      <p class="choices">
        <button type="button" class="primary" disabled={isBusy} onClick={onConfirm}>
          Confirm
        </button>
        <button type="button" ref={cancel} disabled={isBusy} onClick={onCancel}>
          Cancel
        </button>
      </p>
    </div>
  );
}
