/** The name of a node, or of a pod, which leads to its devices. */

import { addressOf } from "../state/address.ts";

export function NodeName(props: { readonly name: string | undefined }) {
  return props.name ? <Found text={props.name} title={`Show the devices of ${props.name}`} /> : null;
}

export function HolderName(props: { readonly name: string }) {
  return <Found text={props.name} title={`Show the devices that ${props.name} has`} />;
}

function Found(props: { readonly text: string; readonly title: string }) {
  return (
    <a class="found" href={addressOf("devices", { text: props.text })} title={props.title}>
      {props.text}
    </a>
  );
}
