/** Where rows of the grid are, so that only those near the viewport are in the document. */

/** In pixels; style/grid.css has the same. */
export interface RowMetrics {
  /** Of one line of cells. */
  readonly line: number;
  /** Of what a row has above its cells: the node's name, where there is no room beside them. */
  readonly head: number;
  /** Cells in a line. */
  readonly perLine: number;
}

/** Return the top of each row, and behind the last one the height of all. */
export function rowTops(sizes: readonly number[], metrics: RowMetrics): Float64Array {
  const tops = new Float64Array(sizes.length + 1);
  sizes.forEach((size, row) => {
    const lines = Math.max(1, Math.ceil(size / metrics.perLine));
    tops[row + 1] = (tops[row] ?? 0) + metrics.head + lines * metrics.line;
  });
  return tops;
}

export interface RowRange {
  readonly from: number;
  /** Exclusive. */
  readonly to: number;
}

/** Return the rows that are between two heights, and some more on either side. */
export function rowsBetween(tops: Float64Array, top: number, bottom: number, more: number): RowRange {
  const rows = tops.length - 1;
  const from = Math.max(0, rowAt(tops, top) - more);
  const to = Math.min(rows, rowAt(tops, bottom) + 1 + more);
  return { from, to: Math.max(from, to) };
}

/** Return the row at a height; the first or the last one where it is outside. */
export function rowAt(tops: Float64Array, height: number): number {
  let low = 0;
  let high = Math.max(0, tops.length - 2);
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if ((tops[middle] ?? 0) <= height) low = middle;
    else high = middle - 1;
  }
  return low;
}
