/** What the page begins with, below its pools: a module of its own, so that the bars are painted before it. */

export { DeviceGrid } from "../grid/DeviceGrid.tsx";
export { Attention } from "./Attention.tsx";
