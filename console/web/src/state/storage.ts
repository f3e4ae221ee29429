/** The browser's storage, which the viewer may have closed to pages: then nothing is kept. */

export function readKept(storage: () => Storage, key: string): string | null {
  try {
    return storage().getItem(key);
  } catch {
    return null;
  }
}

/** Keep a text; with null, keep none. */
export function keep(storage: () => Storage, key: string, text: string | null): void {
  try {
    if (text === null) storage().removeItem(key);
    else storage().setItem(key, text);
  } catch {
    // The preference holds until the page is closed.
  }
}
