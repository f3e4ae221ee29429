/** The page as a whole. */

import { render } from "preact";
import { Empty } from "../parts/Empty.tsx";
import { loaded } from "../parts/loaded.tsx";
import { choices, type View, view } from "../state/address.ts";
import { connectNow, link } from "../state/link.ts";
import { store } from "../state/store.ts";
import { Pools } from "../views/Pools.tsx";
import { Notices } from "./Notices.tsx";
import { Shortcuts, startShortcuts } from "./Shortcuts.tsx";
import { TopBar } from "./TopBar.tsx";
import { Views } from "./Views.tsx";

const SHOWN: Readonly<Record<View, preact.FunctionComponent>> = {
  devices: loaded(async () => (await import("../views/devices.ts")).DeviceGrid),
  waiting: loaded(async () => (await import("../views/others.ts")).Waiting),
  reservations: loaded(async () => (await import("../views/others.ts")).Reservations),
  who: loaded(async () => (await import("../views/others.ts")).Who),
  fits: loaded(async () => (await import("../views/others.ts")).Fits),
  "what-if": loaded(async () => (await import("../views/others.ts")).WhatIf),
  health: loaded(async () => (await import("../views/others.ts")).Health),
};
const Attention = loaded(async () => (await import("../views/devices.ts")).Attention);
const DevicePanel = loaded(async () => (await import("../views/others.ts")).DevicePanel);
const Login = loaded(async () => (await import("../views/others.ts")).Login);

/** Put the page into the document. */
export function show(): void {
  startShortcuts();
  const element = document.getElementById("page");
  if (element !== null) render(<Page />, element);
}

function Page() {
  const state = link.value;
  return (
    <>
      <button type="button" class="skip" onClick={() => document.getElementById("main")?.focus()}>
        Skip to the view
      </button>
      <TopBar />
      {state.kind === "refused" ? <Login refused={state} /> : store.origin.value === null ? <Opening /> : <Content />}
      <Shortcuts />
    </>
  );
}

function Opening() {
  const state = link.value;
  return (
    <main class="opening" id="main" tabIndex={-1}>
      {state.kind === "apart" ? (
        <>
          <Empty title="The console is not connected">It said: {state.why}</Empty>
          <p>
            <button type="button" onClick={connectNow}>
              Connect now
            </button>
          </p>
        </>
      ) : (
        <p class="dim">Reading the cluster …</p>
      )}
    </main>
  );
}

function Content() {
  const View = SHOWN[view.value];
  const device = choices.device.value;
  const hasAside = device !== "" || view.value === "devices";
  return (
    <>
      <Notices />
      <Pools />
      <Views />
      <div class={`content ${hasAside ? "with-aside" : ""}`}>
        <main id="main" tabIndex={-1}>
          <View key={view.value} />
        </main>
        {hasAside && (
          <aside class={device === "" ? "" : "has-panel"} aria-label={device === "" ? "Worth a look" : "Device"}>
            {device === "" ? <Attention /> : <DevicePanel key={device} name={device} />}
          </aside>
        )}
      </div>
    </>
  );
}
