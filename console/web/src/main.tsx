/** Starts the page. */

import { effect } from "@preact/signals";
import { render } from "preact";
import { Page } from "./frame/Page.tsx";
import { startShortcuts } from "./frame/Shortcuts.tsx";
import { follow, hrefOf, view } from "./state/address.ts";
import { startClock } from "./state/clock.ts";
import { connectAnew, startLink } from "./state/link.ts";
import { logInByAddress } from "./state/login.ts";
import { startPreferences } from "./state/preferences.ts";
import { store } from "./state/store.ts";
import "./style/page.css";

startPreferences();
startClock();
startShortcuts();

await logInByAddress();
follow(location.hash);
window.addEventListener("hashchange", () => void arrived());
effect(() => history.replaceState(null, "", hrefOf(view.value)));
effect(() => {
  const waiting = store.rows("waiting").size;
  document.title = `${waiting > 0 ? `(${waiting}) ` : ""}GPU console`;
});
startLink();

const page = document.getElementById("page");
if (page !== null) render(<Page />, page);

/** Follow a link, or an address that was pasted: it may be one that logs in. */
async function arrived(): Promise<void> {
  const isNew = await logInByAddress();
  follow(location.hash);
  if (isNew) connectAnew();
}
