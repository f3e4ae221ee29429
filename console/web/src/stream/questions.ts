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
export function request(path: string, signal: AbortSignal, more: RequestInit = {}): Promise<Response> {
  const headers: Record<string, string> = bearer.value === "" ? {} : { Authorization: `Bearer ${bearer.value}` };
  return fetch(path, {
    ...more,
    headers: { ...headers, ...(more.headers as Record<string, string> | undefined) },
    signal,
    cache: "no-store",
    credentials: "same-origin",
    redirect: "error",
  });
}

/** What makes of a document a request that a page of another site cannot send. */
export function posted(document: unknown): RequestInit {
  const headers = { "Content-Type": "application/json", "X-GPU-Console": "decision" };
  return { method: "POST", headers, body: JSON.stringify(document) };
}

/**
 * Return an answer's document.
 *
 * @throws RefusedError
 */
export async function ask<T>(path: string, signal: AbortSignal, more?: RequestInit): Promise<T> {
  const answer = await request(path, signal, more);
  if (!answer.ok) throw new RefusedError(await errorOf(answer), answer.status);
  return (await answer.json()) as T;
}
