/** A pool's units over the last hour, stacked in the order of the bars, and the pods that wait as a line. */

import { effect, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import type { Figure, PoolSeries } from "../state/history.ts";
import { now } from "../state/clock.ts";
import { theme } from "../state/preferences.ts";
import { store } from "../state/store.ts";
import { clockText, countText } from "../text/format.ts";

const HEIGHT = 150;
/** From the bottom to the top. */
const STACK = ["used", "reserved", "withheld", "free"] as const;

export function PoolChart(props: { readonly name: string }) {
  const box = useRef<HTMLDivElement>(null);
  const place = useSignal<number | null>(null);
  const { name } = props;
  useEffect(() => {
    const element = box.current;
    const series = store.series.get(name);
    if (element === null || series === undefined) return undefined;
    const chart = new uPlot(
      options(element, (at) => (place.value = at)),
      stacked(series),
      element,
    );
    const resized = new ResizeObserver(() => chart.setSize({ width: element.clientWidth, height: HEIGHT }));
    resized.observe(element);
    const schemes = window.matchMedia("(prefers-color-scheme: dark)");
    const redraw = (): void => chart.redraw();
    schemes.addEventListener("change", redraw);
    const ends = [
      effect(() => {
        void now.value;
        chart.setData(stacked(store.series.get(name) ?? series));
      }),
      effect(() => {
        void theme.value;
        requestAnimationFrame(redraw);
      }),
    ];
    return () => {
      for (const end of ends) end();
      schemes.removeEventListener("change", redraw);
      resized.disconnect();
      chart.destroy();
    };
  }, [name]);
  return (
    <figure class="chart">
      <div ref={box} class="chart-box" role="img" aria-label={`Units of ${name} in the last hour`} />
      <Values name={name} place={place.value} />
    </figure>
  );
}

function Values(props: { readonly name: string; readonly place: number | null }) {
  void now.value;
  const series = store.series.get(props.name);
  if (series === undefined || series.at.length === 0) return null;
  const place = props.place ?? series.at.length - 1;
  const valueOf = (figure: Figure): string => countText(series.values[figure][place] ?? 0);
  return (
    <figcaption class="chart-values">
      <span class="chart-time">{clockText((series.at[place] ?? 0) * 1000)}</span>
      {STACK.map((figure) => (
        <span key={figure}>
          <span class={`swatch ${figure}`} aria-hidden="true" /> {valueOf(figure)} {figure}
        </span>
      ))}
      <span>
        <span class="swatch waiting" aria-hidden="true" /> {valueOf("waiting")} pods wait
      </span>
    </figcaption>
  );
}

function stacked(series: PoolSeries): uPlot.AlignedData {
  const sums: number[][] = [];
  for (const figure of STACK) {
    const below = sums.at(-1);
    sums.push(series.values[figure].map((value, place) => value + (below?.[place] ?? 0)));
  }
  // The tallest is painted first, so that the others are painted over it.
  return [series.at, ...sums.reverse(), series.values.waiting, series.values.waiting];
}

function options(element: HTMLElement, onPlace: (place: number | null) => void): uPlot.Options {
  const colour = (name: string): string => colourOf(element, name);
  const axis = { stroke: () => colour("text"), ticks: { show: false }, font: "11px sans-serif" };
  const waiting = { scale: "pods", points: { show: false } };
  return {
    width: element.clientWidth,
    height: HEIGHT,
    legend: { show: false },
    cursor: { y: false, points: { show: false }, drag: { x: false, y: false } },
    scales: {
      units: { range: (_, _low, high) => [0, Math.max(1, high)] },
      pods: { range: (_, _low, high) => [0, Math.max(4, high * 2)] },
    },
    axes: [
      {
        ...axis,
        size: 22,
        grid: { show: false },
        values: (_, seconds) => seconds.map((at) => clockText(at * 1000).slice(0, 5)),
      },
      {
        ...axis,
        scale: "units",
        size: 46,
        incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000],
        grid: { stroke: () => colour("line"), width: 1 },
        values: (_, counts) => counts.map(countText),
      },
    ],
    series: [
      {},
      ...[...STACK].reverse().map((figure) => ({
        scale: "units",
        stroke: () => colour(`edge-${figure}`),
        fill: () => filling(element, figure),
        width: 1,
        points: { show: false },
      })),
      // A line of the ground below it, which keeps it apart from what it crosses.
      { ...waiting, stroke: () => colour("ground"), width: 3.5 },
      { ...waiting, stroke: () => colour("waiting"), width: 1.5, dash: [5, 3] },
    ],
    hooks: { setCursor: [(chart) => onPlace(chart.cursor.idx ?? null)] },
  };
}

/** Return the colour that style/tokens.css gives a name: computed, because a canvas knows no `light-dark()`. */
function colourOf(element: HTMLElement, name: string): string {
  return getComputedStyle(element).getPropertyValue(`--chart-${name}`) || "gray";
}

/** Return a plain colour, and a hatched one for figures that differ from their neighbours in more than colour. */
function filling(element: HTMLElement, figure: (typeof STACK)[number]): CanvasPattern | string {
  const colour = colourOf(element, figure);
  if (figure === "used" || figure === "free") return colour;
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const pen = tile.getContext("2d");
  if (pen === null) return colour;
  pen.fillStyle = colour;
  pen.fillRect(0, 0, 6, 6);
  pen.strokeStyle = colourOf(element, `edge-${figure}`);
  pen.lineWidth = 1.2;
  pen.beginPath();
  for (const from of [-6, 0, 6]) {
    pen.moveTo(from, 6);
    pen.lineTo(from + 6, 0);
  }
  pen.stroke();
  return pen.createPattern(tile, "repeat") ?? colour;
}
