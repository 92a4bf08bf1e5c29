// Tokens as chips, and the patches of a picture. A step of decoding is marked where it is.
import { useState } from "preact/hooks";
import { html, word, to } from "page/ui.js";
import { listing, step } from "page/state.js";

const FEW = 200;

/** @param {{words: string[], side: string, segments?: number[], written?: number | null}} given */
export function Tokens({ words, side, segments = null, written = null }) {
  const all = listing.value;
  const mine = side !== "source" && all.run.choices ? all.position(step.value) : -1;
  const stack = side === "source" ? "encoder" : side === "target" ? "decoder" : "stack";
  const first = all.data.addresses.find((each) => each.address.startsWith(`${stack}.`) && each.axes[0] === "t");
  const [whole, setWhole] = useState(false);
  const some = whole ? words : words.slice(0, FEW);
  return html`<ol class="tokens" aria-label=${`tokens: ${side}`}>${some.map((text, n) => {
    const kind = [
      "token",
      n === mine ? "now" : "",
      segments?.[n] ? "second" : "",
      written !== null && n >= written ? "new" : "",
    ].join(" ");
    const inside = html`<span class="n">${n}</span><bdi dir="auto">${word(text)}</bdi>`;
    return html`<li class=${kind}>${first ? html`<a href=${to(`${first.address}[${n}]`)}>${inside}</a>` : inside}</li>`;
  })}${words.length > some.length && html`<li><button type="button" class="quiet" onClick=${() => setWhole(true)}>
    … ${words.length - some.length} more</button></li>`}</ol>`;
}

/** The picture a model saw, with its patches; `weights` brightens them. */
export function Picture({ picture, grid, weights = null, wide = 224, onOpen = null }) {
  const [rows, columns] = grid ?? [1, 1];
  const top = weights ? Math.max(...weights, 1e-9) : 1;
  return html`<div class="picture" style=${{ width: `${wide}px` }}>
    <img src=${picture} alt="what the model saw" width=${wide} />
    <svg viewBox=${`0 0 ${columns} ${rows}`} preserveAspectRatio="none" aria-hidden="true">${[
      ...Array(rows * columns).keys(),
    ].map(
      (n) =>
        html`<rect x=${n % columns} y=${Math.floor(n / columns)} width="1" height="1"
          fill=${weights ? "#fd3" : "none"} fill-opacity=${weights ? (0.85 * weights[n]) / top : 0}
          onClick=${onOpen ? () => onOpen(n) : undefined} />`,
    )}</svg></div>`;
}
