/** The page as a whole. */

import { DeviceGrid } from "../grid/DeviceGrid.tsx";
import { DevicePanel } from "../grid/DevicePanel.tsx";
import { Empty } from "../parts/Empty.tsx";
import { choices, type View, view } from "../state/address.ts";
import { connectNow, link } from "../state/link.ts";
import { store } from "../state/store.ts";
import { Attention } from "../views/Attention.tsx";
import { Fits } from "../views/Fits.tsx";
import { Health } from "../views/Health.tsx";
import { Pools } from "../views/Pools.tsx";
import { Reservations } from "../views/Reservations.tsx";
import { Waiting } from "../views/Waiting.tsx";
import { WhatIf } from "../views/WhatIf.tsx";
import { Who } from "../views/Who.tsx";
import { Login } from "./Login.tsx";
import { Notices } from "./Notices.tsx";
import { Shortcuts } from "./Shortcuts.tsx";
import { TopBar } from "./TopBar.tsx";
import { Views } from "./Views.tsx";

const SHOWN: Readonly<Record<View, () => preact.JSX.Element | null>> = {
  devices: DeviceGrid,
  waiting: Waiting,
  reservations: Reservations,
  who: Who,
  fits: Fits,
  "what-if": WhatIf,
  health: Health,
};

export function Page() {
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
