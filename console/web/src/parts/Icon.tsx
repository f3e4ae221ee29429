/** Small drawings of the page's own, in the colour of the text. */

const PATHS = {
  close: "M3 3l8 8M11 3l-8 8",
  search: "M6 10.5a4.5 4.5 0 1 1 0-9 4.5 4.5 0 0 1 0 9zM9.5 9.5L13 13",
  light:
    "M7 4.2a2.8 2.8 0 1 1 0 5.6 2.8 2.8 0 0 1 0-5.6zM7 .8v1.6M7 11.6v1.6M.8 7h1.6M11.6 7h1.6M2.6 2.6l1.1 1.1M10.3 10.3l1.1 1.1M11.4 2.6l-1.1 1.1M3.7 10.3l-1.1 1.1",
  dark: "M12 8.4A5.4 5.4 0 0 1 5.6 2a5.4 5.4 0 1 0 6.4 6.4z",
  system: "M1.5 2.5h11v7h-11zM5 12h4M7 9.5V12",
  open: "M4 5.5l3 3 3-3",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon(props: { readonly name: IconName }) {
  return (
    <svg class={`icon ${props.name}`} viewBox="0 0 14 14" width="14" height="14" aria-hidden="true">
      <path
        d={PATHS[props.name]}
        fill="none"
        stroke="currentColor"
        stroke-width="1.4"
        stroke-linecap="round"
        stroke-linejoin="round"
      />
    </svg>
  );
}
