// A server with keys asks for one. It is kept for this tab alone.
import { signal } from "@preact/signals";
import { html } from "page/html.js";

export const access = signal("");

export function Locked({ onDone }) {
  const done = (event) => {
    event.preventDefault();
    access.value = new FormData(event.target).get("key").trim();
    onDone();
  };
  return html`<form class="banner" role="alert" onSubmit=${done}>
    <label>This server wants a key: <input name="key" type="password" autocomplete="off" />
    </label> <button>go on</button></form>`;
}
