/** A reservation's time to live, shrinking. */

import type { ReservationRow } from "../rows.ts";
import { now } from "../state/clock.ts";
import { durationText, momentMs, partLeft } from "../text/format.ts";

export function TimeLeft(props: { readonly row: ReservationRow }) {
  const { row } = props;
  const expires = momentMs(row.expires);
  if (expires === null) return <span class="dim">its Binding is under way</span>;
  const text = durationText((expires - now.value) / 1000);
  return (
    <span class="left">
      <progress max={1} value={partLeft(row.created, row.expires, now.value)} aria-label={`${text} left`} />
      <span class="number">{text}</span>
    </span>
  );
}
