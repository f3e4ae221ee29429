/** Where the keys of a grid lead, as the ARIA practices for grids say. */

export interface Place {
  readonly row: number;
  readonly column: number;
}

export interface GridShape {
  readonly rows: number;
  readonly sizeOf: (row: number) => number;
  /** Rows that Page Up and Page Down leave behind. */
  readonly page: number;
}

export interface Key {
  readonly key: string;
  readonly ctrlKey: boolean;
}

/** Return the place that a key leads to; null for keys that do not move. */
export function moved(place: Place, key: Key, shape: GridShape): Place | null {
  const { row, column } = place;
  switch (key.key) {
    case "ArrowLeft":
      return within({ row, column: column - 1 }, shape);
    case "ArrowRight":
      return within({ row, column: column + 1 }, shape);
    case "ArrowUp":
      return within({ row: row - 1, column }, shape);
    case "ArrowDown":
      return within({ row: row + 1, column }, shape);
    case "PageUp":
      return within({ row: row - shape.page, column }, shape);
    case "PageDown":
      return within({ row: row + shape.page, column }, shape);
    case "Home":
      return within({ row: key.ctrlKey ? 0 : row, column: 0 }, shape);
    case "End":
      return within({ row: key.ctrlKey ? shape.rows - 1 : row, column: Number.MAX_SAFE_INTEGER }, shape);
    default:
      return null;
  }
}

/** Return the nearest place that is there. */
export function within(place: Place, shape: GridShape): Place {
  const row = Math.max(0, Math.min(shape.rows - 1, place.row));
  const column = Math.max(0, Math.min(shape.sizeOf(row) - 1, place.column));
  return { row, column };
}
