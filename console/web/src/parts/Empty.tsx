/** Said where there is nothing to show: why, and what to do. */

import type { ComponentChildren } from "preact";

export function Empty(props: { readonly title: string; readonly children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{props.title}</p>
      {props.children !== undefined && <p>{props.children}</p>}
    </div>
  );
}
