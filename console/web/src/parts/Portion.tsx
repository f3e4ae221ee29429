/** The first rows of a long list, and a button for more: a list of thousands is not rendered all at once. */

import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { counted, countText } from "../text/format.ts";

const STEP = 100;

export function Portion<T>(props: {
  readonly rows: readonly T[];
  readonly noun: string;
  readonly children: (rows: readonly T[]) => ComponentChildren;
}) {
  const shown = useSignal(STEP);
  const { rows, noun } = props;
  const left = rows.length - shown.value;
  return (
    <>
      {props.children(left > 0 ? rows.slice(0, shown.value) : rows)}
      {left > 0 && (
        <p class="more">
          <button type="button" onClick={() => (shown.value += STEP)}>
            Show {Math.min(STEP, left)} more
          </button>
          <span class="dim">
            {countText(shown.value)} of {counted(rows.length, noun)}
          </span>
        </p>
      )}
    </>
  );
}
