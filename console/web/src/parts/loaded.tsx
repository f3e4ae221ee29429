/** Parts of the page whose modules are fetched when they are first on it, after the page around them is painted. */

import { signal } from "@preact/signals";
import type { FunctionComponent } from "preact";
import { useEffect } from "preact/hooks";
import { Empty } from "./Empty.tsx";

interface Fetched<P> {
  readonly Part?: FunctionComponent<P>;
}

/** Return a component that fetches another one, is empty until it has come, and says so when it does not come. */
export function loaded<P extends object>(load: () => Promise<FunctionComponent<P>>): FunctionComponent<P> {
  const fetched = signal<Fetched<P> | null>(null);
  return function Loaded(props: P) {
    useEffect(() => {
      if (fetched.peek()?.Part === undefined) {
        load().then(
          (Part) => (fetched.value = { Part }),
          () => (fetched.value = {}),
        );
      }
    }, []);
    if (fetched.value === null) return null;
    const { Part } = fetched.value;
    return Part === undefined ? <NotLoaded /> : <Part {...props} />;
  };
}

function NotLoaded() {
  return (
    <>
      <Empty title="This part of the page did not load">
        The console does not answer, or it is of another version now than this page.
      </Empty>
      <p>
        <button type="button" onClick={() => location.reload()}>
          Load the page again
        </button>
      </p>
    </>
  );
}
