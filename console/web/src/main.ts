/** What the page has whatever it shows, and the page itself. */

import { effect } from "@preact/signals";
import { follow, hrefOf, view } from "./state/address.ts";
import { startClock } from "./state/clock.ts";
import { connectAgain, startLink } from "./state/link.ts";
import { logInByAddress } from "./state/login.ts";
import { startPreferences } from "./state/preferences.ts";
import { store } from "./state/store.ts";
import style from "./style/page.css";

// No stylesheet of the document: the first paint would wait for it, and there is nothing to paint before this script.
const sheet = new CSSStyleSheet();
sheet.replaceSync(style);
document.adoptedStyleSheets = [sheet];
startPreferences();
startClock();

await logInByAddress();
follow(location.hash);
window.addEventListener("hashchange", () => void arrived());
effect(() => history.replaceState(null, "", hrefOf(view.value)));
effect(() => {
  const waiting = store.rows("waiting").size;
  document.title = `${waiting > 0 ? `(${waiting}) ` : ""}GPU console`;
});
startLink();
// Beside the cluster's rows, without which it is not shown.
if (view.value === "devices") import("./views/devices.ts").catch(() => undefined);

// A module of its own: what draws the page is no part of this one's task. The document has fetched it.
const { show } = await import("./frame/Page.tsx");
show();

/** Follow a link, or an address that was pasted: it may be one that logs in. */
async function arrived(): Promise<void> {
  const isNew = await logInByAddress();
  follow(location.hash);
  if (isNew) connectAgain();
}
