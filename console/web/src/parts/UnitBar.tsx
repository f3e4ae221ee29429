/** Units of a pool, of a namespace or of a node as a bar: used, reserved, free, withheld, always in this order, and the rest. */

import { countText } from "../text/format.ts";

export interface UnitFigures {
  readonly used?: number;
  readonly reserved?: number;
  readonly free?: number;
  readonly withheld?: number;
}

export const PARTS = ["used", "reserved", "free", "withheld"] as const;

export function UnitBar(props: { readonly figures: UnitFigures; readonly total: number }) {
  const { figures, total } = props;
  const there = PARTS.filter((part) => (figures[part] ?? 0) > 0);
  const rest = total - there.reduce((sum, part) => sum + (figures[part] ?? 0), 0);
  const said = there.map((part) => `${countText(figures[part] ?? 0)} ${part}`).join(", ");
  return (
    <div class="bar" role="img" aria-label={`${said || "no unit"} of ${countText(total)}`}>
      {there.map((part) => (
        <span key={part} class={`part ${part}`} style={{ flexGrow: `${figures[part]}` }} />
      ))}
      {rest > 0 && <span class="part" style={{ flexGrow: `${rest}` }} />}
    </div>
  );
}
