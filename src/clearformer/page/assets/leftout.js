// What an exported file does not hold, and the command that gets it.
import { html } from "page/html.js";
import { source } from "page/state.js";

export function LeftOut() {
  const left = source.value?.leftOut;
  if (!left || (!left.list.length && !left.notes.length)) return null;
  return html`<details class="left-out"><summary>what is not in this file</summary>${left.notes.map((each) => html`<p>
    ${each}</p>`)}${left.list.length > 0 && html`<p>${left.list.length} tensors were left out to keep it small:</p>`}
    <ul>${left.list.slice(0, 200).map((each) => html`<li><code>${each}</code></li>`)}</ul>
    ${left.command && html`<p>To see everything: <code>${left.command}</code></p>`}</details>`;
}
