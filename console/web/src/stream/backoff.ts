/** How long to wait before the page connects again. */

const FIRST_MS = 1000;
const LONGEST_MS = 30_000;

/**
 * Return the wait before an attempt: doubled each time up to half a minute, and between a half and the whole of it by
 * lot, so that pages do not come back all at once.
 *
 * @param attempt from 0
 * @param lot from 0 to 1
 */
export function waitMs(attempt: number, lot: number): number {
  const whole = Math.min(LONGEST_MS, FIRST_MS * 2 ** Math.min(attempt, 16));
  return whole * (0.5 + lot / 2);
}
