// What colours mean.
import { stops } from "page/colour.js";
import { number } from "page/format.js";
import { html } from "page/html.js";
import { ABSENT, FUTURE, PADDING } from "page/paint.js";

export function Legend({ scale, marks, bars = false }) {
  const seen = { has: (mark) => marks?.includes(mark) };
  const tidy = (value) => (Number.isInteger(value) ? String(value).replace("-", "−") : number(value));
  return html`<span class="legend"><span>${tidy(scale.low)}</span>
    ${bars ? html`<span>to</span>` : html`<span class="ramp" aria-hidden="true"
      style=${{ background: `linear-gradient(to right, ${stops(scale).join(", ")})` }}>
      </span>`}<span>${tidy(scale.high)}</span>
    ${seen.has(FUTURE) && html`<span class="key future">later (causal)</span>`}
    ${seen.has(PADDING) && html`<span class="key padding">padding</span>`}
    ${seen.has(ABSENT) && html`<span class="key absent">not computed</span>`}</span>`;
}
