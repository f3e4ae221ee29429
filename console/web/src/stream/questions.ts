/** Single questions to the console. */

import { bearer } from "../state/login.ts";
import { errorOf } from "./connection.ts";

/** An answer that is not 2xx; the text is for the viewer. */
export class RefusedError extends Error {
  constructor(
    message: string,
    readonly status: number,
  ) {
    super(message);
  }
}

/** Ask with the viewer's token, where there is one. */
export function request(path: string, signal: AbortSignal): Promise<Response> {
  const headers: Record<string, string> = bearer.value === "" ? {} : { Authorization: `Bearer ${bearer.value}` };
  return fetch(path, { headers, signal, cache: "no-store", credentials: "same-origin", redirect: "error" });
}

/**
 * Return an answer's document.
 *
 * @throws RefusedError
 */
export async function ask<T>(path: string, signal: AbortSignal): Promise<T> {
  const answer = await request(path, signal);
  if (!answer.ok) throw new RefusedError(await errorOf(answer), answer.status);
  return (await answer.json()) as T;
}
