/** The answer to a question that is asked again when what it is about changes. */

import { type Signal, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ask, RefusedError } from "../stream/questions.ts";
import { connectAgain } from "./link.ts";

export type Answer<T> =
  | { readonly kind: "asked" }
  | { readonly kind: "answered"; readonly value: T }
  | { readonly kind: "refused"; readonly why: string };

const AGAIN_MS = 400;

/**
 * Ask, and ask again when `version` moves; what was answered before stays until there is another answer.
 *
 * @param path null asks nothing
 */
export function useAnswer<T>(path: string | null, version: unknown): Signal<Answer<T>> {
  const answer = useSignal<Answer<T>>({ kind: "asked" });
  useEffect(() => {
    answer.value = { kind: "asked" };
  }, [path]);
  useEffect(() => {
    if (path === null) return undefined;
    const stop = new AbortController();
    const wait = answer.peek().kind === "answered" ? AGAIN_MS : 0;
    const timer = window.setTimeout(
      () => void answered<T>(path, stop.signal).then((one) => one && (answer.value = one)),
      wait,
    );
    return () => {
      window.clearTimeout(timer);
      stop.abort();
    };
  }, [path, version]);
  return answer;
}

/** Ask once; null where the question was given up. */
export async function answered<T>(path: string, signal: AbortSignal, more?: RequestInit): Promise<Answer<T> | null> {
  try {
    return { kind: "answered", value: await ask<T>(path, signal, more) };
  } catch (error) {
    if (signal.aborted) return null;
    if (!(error instanceof RefusedError)) return { kind: "refused", why: "The console does not answer." };
    if (error.status === 401) connectAgain();
    return { kind: "refused", why: error.message };
  }
}
