/** Numbers and times as the page writes them. */

const UNITS: readonly (readonly [string, number])[] = [
  ["d", 86_400],
  ["h", 3600],
  ["m", 60],
  ["s", 1],
];

/** Return the largest part of a duration and the next smaller one, such as `3m19s`; `0s` for the future. */
export function durationText(seconds: number): string {
  let left = Math.max(0, Math.floor(seconds));
  const parts: (readonly [number, string])[] = [];
  for (const [unit, size] of UNITS) {
    const number = Math.floor(left / size);
    left -= number * size;
    if (number > 0 || parts.length > 0 || unit === "s") parts.push([number, unit]);
  }
  return parts
    .slice(0, 2)
    .filter(([number], place) => number > 0 || place === 0)
    .map(([number, unit]) => `${number}${unit}`)
    .join("");
}

/** Return the time between a moment and now; empty where the text is no time. */
export function ageText(moment: string | undefined, nowMs: number): string {
  const at = momentMs(moment);
  return at === null ? "" : durationText((nowMs - at) / 1000);
}

/** Return milliseconds since the epoch; null where the text is no time. */
export function momentMs(moment: string | undefined): number | null {
  const at = moment ? Date.parse(moment) : Number.NaN;
  return Number.isNaN(at) ? null : at;
}

/** Return the time of day on the viewer's clock, such as 14:03:09. */
export function clockText(atMs: number): string {
  const at = new Date(atMs);
  return [at.getHours(), at.getMinutes(), at.getSeconds()].map((one) => `${one}`.padStart(2, "0")).join(":");
}

/** Return a number with its thousands apart. */
export function countText(count: number): string {
  return `${Math.trunc(count)}`.replace(/\B(?=(\d{3})+$)/g, ",");
}

/** Return a number and its noun, such as `1 unit` or `4 units`. */
export function counted(count: number, noun: string): string {
  return `${countText(count)} ${noun}${count === 1 ? "" : "s"}`;
}

/** Return a part of a whole in percent; `0%` of nothing. */
export function percentText(part: number, whole: number): string {
  const percent = whole > 0 ? (100 * part) / whole : 0;
  return `${percent > 0 && percent < 1 ? "<1" : Math.round(percent)}%`;
}

/** Return the remaining part of a time to live, from 1 to 0. */
export function partLeft(created: string | undefined, expires: string | undefined, nowMs: number): number {
  const [from, until] = [momentMs(created), momentMs(expires)];
  if (from === null || until === null || until <= from) return 0;
  return Math.min(1, Math.max(0, (until - nowMs) / (until - from)));
}

/** Compare as people do: gpu-2 comes before gpu-10. */
export const byName: (a: string, b: string) => number = new Intl.Collator("en", { numeric: true }).compare;

/** Compare by code units, which is far quicker, for times and keys. */
export function byText(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
