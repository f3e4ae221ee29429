/** What the page shows only when it is asked for: a module of its own, so that the page begins with less. */

export { Login } from "../frame/Login.tsx";
export { DevicePanel } from "../grid/DevicePanel.tsx";
export { Fits } from "./Fits.tsx";
export { Health } from "./Health.tsx";
export { Reservations } from "./Reservations.tsx";
export { Waiting } from "./Waiting.tsx";
export { WhatIf } from "./WhatIf.tsx";
export { Who } from "./Who.tsx";
