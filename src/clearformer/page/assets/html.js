// htm bound to preact: html`<p>…</p>`. Every text goes in as a text node.
import { h } from "preact";
import htm from "htm";

export const html = htm.bind(h);
