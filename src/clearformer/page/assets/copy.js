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

export function Copy({ text, children, done: told = "copied", title }) {
  const [done, set] = useState(false);
  const press = async () => {
    await copy(typeof text === "function" ? text() : text);
    set(true);
    say(told);
    setTimeout(() => set(false), told === "copied" ? 1500 : 4000);
  };
  return html`<button type="button" title=${title} onClick=${press}>${done ? told : children}</button>`;
}
