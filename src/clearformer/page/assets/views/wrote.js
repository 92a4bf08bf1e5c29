// Who wrote this word: everything that was added to the stream, as parts that sum to the logit, visibly.
import { useState } from "preact/hooks";
import { html, Bars, number, signed, to, Waiting, word } from "page/ui.js";
import { Head, Note, useAsked, useLogit } from "page/views/ask.js";

/** The heads of an attention and its bias as one. */
function branches(parts) {
  const found = new Map();
  for (const { address, value } of parts) {
    const words = address.split("[")[0].split(".").slice(0, -1);
    if (words.at(-1) === "output") words.pop();
    if (/^h\d+$/.test(words.at(-1))) words.pop();
    const name = words.join(".") || address;
    found.set(name, (found.get(name) ?? 0) + value);
  }
  return [...found].map(([address, value]) => ({ address, value }));
}

export function WroteView() {
  const logit = useLogit();
  const [by, setBy] = useState("part");
  const { value: found, error } = useAsked("attribution", logit.address ? { address: logit.address } : null);
  const sorted = found
    ? [...(by === "branch" ? branches(found.parts) : found.parts)].sort((a, b) => Math.abs(b.value) - Math.abs(a.value))
    : [];
  const shown = sorted.slice(0, 24);
  const rest = sorted.slice(24).reduce((sum, part) => sum + part.value, 0);
  return html`<section class="level"><${Head} title="Who wrote this word?">
    <p>The logit, split into all that was added to the stream.</p>${logit.control}</${Head}>
    ${
      !logit.has
        ? html`<p class="problem">This model has no logits.</p>`
        : !found
          ? html`<${Waiting} error=${error} what="the parts" />`
          : html`<${Note} found=${found} />
    <p class="result"><a href=${to(found.address)} data-value=${String(found.logit)}>${found.word ? html`“<bdi>
      ${word(found.word)}</bdi>” ` : ""}${number(found.logit)}
      </a> <span class="dim">= the sum of ${found.parts.length} parts, <span data-sum=${String(found.total)}>
      ${number(found.total)}</span></span></p>
    <${Cascade} parts=${by === "branch" ? branches(found.parts) : found.parts} total=${found.total} />
    <span class="switch" role="group" aria-label="how fine">
      <button type="button" aria-pressed=${by === "part"} onClick=${() => setBy("part")}>by head</button>
      <button type="button" aria-pressed=${by === "branch"} onClick=${() => setBy("branch")}>by branch</button></span>
    <${Bars} plus label="parts of the logit, largest first" items=${[...shown.map((part) => ({ name: html`<code>
      ${part.address}
      </code>`, value: part.value, href: to(part.address) })), ...(sorted.length > 24 ? [{ name: `${sorted.length - 24} smaller ones`, value: rest }] : [])]} />`
    }</section>`;
}

/** The parts in the order they were added, each beginning where the last one ended: the end is the logit. */
function Cascade({ parts, total }) {
  let at = 0;
  const steps = parts.map((part) => ({ ...part, from: at, to: (at += part.value) }));
  const low = Math.min(0, ...steps.map((each) => each.to)),
    high = Math.max(0, ...steps.map((each) => each.to));
  const wide = 900,
    tall = 150,
    each = wide / (steps.length + 1);
  const y = (value) => 8 + ((high - value) / (high - low || 1)) * (tall - 16);
  return html`<figure>
    <svg class="cascade" viewBox=${`0 0 ${wide} ${tall}`} role="img"
      aria-label=${`running sum of ${parts.length} parts, from 0 to ${number(total)}`}>
    <line x1="0" x2=${wide} y1=${y(0)} y2=${y(0)} class="axis" />
    ${steps.map((part, n) => html`<g><title>${`${part.address} ${signed(part.value)}`}</title>
      <rect class=${part.value < 0 ? "down" : "up"} x=${n * each + 0.5} width=${Math.max(1, each - 1)}
        y=${y(Math.max(part.from, part.to))} height=${Math.max(1, Math.abs(y(part.from) - y(part.to)))} />
      </g>`)}
    <rect class="total" x=${steps.length * each + 0.5} width=${each - 1} y=${y(Math.max(0, total))} height=${Math.abs(y(0) - y(total))} />
      </svg><figcaption class="dim">the running sum, in the order of the run; the last bar is the logit</figcaption>
      </figure>`;
}
