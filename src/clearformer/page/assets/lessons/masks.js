// The look-ahead mask and the padding mask, on the scores of the notes.
import { useState } from "preact/hooks";
import { Button, Choice, Matrix, Say, Toggle, edited, html } from "page/lessons/kit.js";
import { map, softmax } from "page/lessons/math.js";

const WORDS = ["<start>", "I", "am", "fine"];
const SCORES = [[0.7, 0.1, 0.1, 0.1], [0.1, 0.6, 0.2, 0.1], [0.1, 0.3, 0.6, 0.1], [0.1, 0.3, 0.3, 0.3]];
const RULES = [["right", "j ≤ i (N4, and N2's table)"], ["strict", "j < i (as N2 prints it)"]];

export function Masks() {
  const [scores, set] = useState(SCORES);
  const [on, setOn] = useState({ causal: true, padding: false });
  const [rule, setRule] = useState("right");
  const later = (r, c) => (rule === "strict" ? c >= r : c > r);
  const why = (r, c) => (on.causal && later(r, c) ? "future" : on.padding && c === WORDS.length - 1 ? "padding" : "");
  const mask = map(scores, (_, r, c) => (why(r, c) ? -Infinity : 0));
  const masked = map(scores, (x, r, c) => x + mask[r][c]);
  const weights = masked.map(softmax);
  const words = on.padding ? [...WORDS.slice(0, -1), "<pad>"] : WORDS;
  const grid = { rows: words, cols: words, axes: "queries ↓ keys →" };
  const empty = weights.some((row) => row.some(Number.isNaN));
  return html`<section class="ls-panel" aria-label="masks">
    <${Say} address="decoder.0.self.h0.weights" where="a decoder's own attention, causal">Hatched cells are −∞ before the softmax and 0 behind it. The causal mask hides what comes later, the padding mask hides words that are not there, and each row shares its weight among the rest.</${Say}>
    <div class="ls-tools"><${Toggle} name="causal mask" on=${on.causal} onChange=${(causal) => setOn({ ...on, causal })} /><${Toggle} name="padding mask: the last word is padding" on=${on.padding} onChange=${(padding) => setOn({ ...on, padding })} />
      ${on.causal && html`<${Choice} name="visible where" value=${rule} options=${RULES} onChange=${setRule} />`}
      <${Button} onClick=${() => { set(SCORES); setOn({ causal: true, padding: false }); setRule("right"); }}>Reset</${Button}></div>
    <div class="ls-beside"><${Matrix} title="scaled scores" values=${scores} ...${grid} onEdit=${(r, c, value) => set(edited(scores, r, c, value))} />
      <${Matrix} title="mask" values=${mask} hidden=${why} ...${grid} /></div>
    <div class="ls-beside"><${Matrix} title="masked scores" values=${masked} hidden=${why} ...${grid} />
      <${Matrix} title="softmax of the masked scores" values=${weights} hidden=${(r, c) => (Number.isNaN(weights[r][c]) ? why(r, c) : "")} shade ...${grid} /></div>
    ${empty && html`<p class="ls-problem" role="status">A row that sees nothing has no softmax: 0 / 0. This is why the mask is j ≤ i: a word sees itself.</p>`}
    <p class="ls-key-line"><span class="ls-future">−∞</span> comes later <span class="ls-padding">−∞</span> padding</p>
  </section>`;
}
