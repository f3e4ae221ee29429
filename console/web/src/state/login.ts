/**
 * Who the page is for.
 *
 * On the viewer's own machine the address has a token, which is exchanged for a cookie at once. In a cluster the viewer
 * gives a token, which is sent with each request and kept until the tab is closed, at most.
 */

import { signal } from "@preact/signals";
import { keep, readKept } from "./storage.ts";

const KEY = "console-token";

export const bearer = signal(readKept(() => sessionStorage, KEY) ?? "");

/** Keep a token until the tab is closed, or only until the page is. */
export function useToken(token: string, lasts: boolean): void {
  bearer.value = token;
  keep(() => sessionStorage, KEY, lasts && token !== "" ? token : null);
}

/** Return the token of a fragment; empty where it has none. */
export function tokenOf(fragment: string): string {
  return /^#token=(.+)$/.exec(fragment)?.[1] ?? "";
}

/** Exchange the token in the address, if it has one, for a cookie, and take it out of the address; say whether it had. */
export async function logInByAddress(): Promise<boolean> {
  const token = tokenOf(location.hash);
  if (token === "") return false;
  history.replaceState(null, "", location.pathname + location.search);
  try {
    // Refused, the stream says so, too.
    await fetch("api/v1/login", { headers: { Authorization: `Bearer ${token}` }, cache: "no-store" });
  } catch {
    // Not reached: the stream tries again, and says why.
  }
  return true;
}
