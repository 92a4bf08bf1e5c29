// The last row's probabilities, colder or warmer: computed here from the logits, not drawn from.
import { useState } from "preact/hooks";
import { html, Bars, percent, useAnswer, Waiting, word } from "page/ui.js";
import { listing, source, step } from "page/state.js";

export function Temperature() {
  const [warmth, set] = useState(1);
  const row = listing.value.position(step.value);
  const { value: found, error } = useAnswer(
    () => Promise.all([source.value.tensor(`head.logits[${row}]`), source.value.ask("outputs")]),
    [source.value, row],
  );
  if (!found) return html`<${Waiting} error=${error} what="the logits" />`;
  const logits = found[0].values;
  let top = -Infinity;
  for (const each of logits) top = Math.max(top, each);
  let sum = 0;
  const shares = Float64Array.from(logits, (each) => Math.exp((each - top) / warmth));
  for (const each of shares) sum += each;
  let entropy = 0;
  shares.forEach((each, n) => {
    shares[n] = each / sum;
    if (shares[n] > 0) entropy -= shares[n] * Math.log2(shares[n]);
  });
  const order = [...shares.keys()].sort((a, b) => shares[b] - shares[a]).slice(0, 8);
  return html`<div class="temperature">
    <label>temperature <input type="range" min="0.1" max="3" step="0.05" value=${warmth}
      onInput=${(event) => set(Number(event.target.value))} /> <output>
    ${warmth.toFixed(2)}</output>
    </label> <span class="dim">step ${step.value + 1} · entropy ${entropy.toFixed(2)} bits${warmth === 1 ? "" : " · what if: not the model's own"}
    </span>
    <${Bars} label="probabilities" most=${1} show=${percent}
      items=${order.map((id) => ({ name: word(found[1].outputs[id] ?? String(id)), value: shares[id] }))} />
      </div>`;
}
