/** How long something has been, ticking. */

import { now } from "../state/clock.ts";
import { ageText, clockText, momentMs } from "../text/format.ts";

export function Age(props: { readonly since: string | undefined }) {
  const at = momentMs(props.since);
  if (at === null) return null;
  return (
    <time dateTime={props.since} title={new Date(at).toString()}>
      {ageText(props.since, now.value)}
    </time>
  );
}

/** The time of day at which something was. */
export function ClockTime(props: { readonly at: string | undefined }) {
  const at = momentMs(props.at);
  if (at === null) return null;
  return (
    <time dateTime={props.at} title={new Date(at).toString()}>
      {clockText(at)}
    </time>
  );
}
