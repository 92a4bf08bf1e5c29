// Help: which keys there are, and what the page is.
import { useEffect, useRef } from "preact/hooks";
import { signal } from "@preact/signals";
import { html } from "page/html.js";
import { KEYS } from "page/keys.js";

export const helping = signal(false);

export function Help() {
  const box = useRef(null);
  useEffect(() => {
    if (helping.value) box.current?.showModal();
    else box.current?.close();
  }, [helping.value]);
  return html`<dialog ref=${box} class="help" aria-labelledby="help-title" onClose=${() => (helping.value = false)}>
    <h2 id="help-title">Keys</h2>
    <dl>${KEYS.map(([key, what]) => html`<div><dt><kbd>${key}</kbd></dt><dd>${what}</dd></div>`)}</dl>
    <p>Each number has one address, the same here, in Python and in the terminal: <code>decoder.2.cross.h3.weights[4,7]</code> is block 2 of the decoder, its cross-attention, head 3, the weight of query 4 on key 7.</p>
    <p><button type="button" autofocus onClick=${() => (helping.value = false)}>close</button></p></dialog>`;
}
