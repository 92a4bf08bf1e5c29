// A button that copies a text and says so.
import { useState } from "preact/hooks";
import { html } from "page/html.js";
import { say } from "page/state.js";

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const box = document.createElement("textarea"); // a page without the right to the clipboard
    box.value = text;
    document.body.append(box);
    box.select();
    document.execCommand("copy");
    box.remove();
  }
}

export function Copy({ text, children }) {
  const [done, set] = useState(false);
  const press = async () => {
    await copy(typeof text === "function" ? text() : text);
    set(true);
    say("copied");
    setTimeout(() => set(false), 1500);
  };
  return html`<button type="button" onClick=${press}>${done ? "copied" : children}</button>`;
}
