// What if: the same scores without √d, without the causal mask, with padding, colder or warmer. Computed here in the
// browser from the head's own scores; nothing of it is the model's own, and it says so.
import { useMemo, useState } from "preact/hooks";
import { html, HeatMap, number } from "page/ui.js";
import { write } from "page/address.js";
import { FUTURE, PADDING } from "page/paint.js";
import { useTensor } from "page/tensor.js";
import { listing } from "page/state.js";

/** Softmax of each row over the cells without a mark. */
export function softmax(scores, rows, cols, marks = null, warmth = 1) {
  const found = new Float32Array(rows * cols);
  for (let r = 0; r < rows; r++) {
    let top = -Infinity;
    for (let c = 0; c < cols; c++) if (!marks?.[r * cols + c]) top = Math.max(top, scores[r * cols + c]);
    let sum = 0;
    for (let c = 0; c < cols; c++)
      if (!marks?.[r * cols + c]) sum += found[r * cols + c] = Math.exp((scores[r * cols + c] - top) / warmth);
    for (let c = 0; c < cols && sum; c++) found[r * cols + c] /= sum;
  }
  return found;
}

/** The variance of scores that are seen, and the mean entropy of the rows in bits. */
export function measured(scores, weights, rows, cols, marks) {
  let n = 0,
    sum = 0,
    squares = 0,
    entropy = 0;
  for (let at = 0; at < rows * cols; at++) {
    if (marks?.[at]) continue;
    n++;
    sum += scores[at];
    squares += scores[at] ** 2;
    if (weights[at] > 0) entropy -= weights[at] * Math.log2(weights[at]);
  }
  return { variance: n ? squares / n - (sum / n) ** 2 : 0, entropy: entropy / rows };
}

export function WhatIf({ group, head, marks, about }) {
  const all = listing.value;
  const [open, setOpen] = useState(false);
  const [root, setRoot] = useState(true);
  const [causal, setCausal] = useState(null);
  const [padding, setPadding] = useState(0);
  const [warmth, setWarmth] = useState(1);
  const step = all.step(`${group}.scores`);
  return html`<details class="what-if" onToggle=${(event) => setOpen(event.target.open)}><summary>
    <h3>What if …</h3> <span class="dim">√d, masks and temperature, played with in the browser</span></summary>
    ${open && html`<${Play} ...${{ group, head, marks, about, step, root, setRoot, causal, setCausal, padding, setPadding, warmth, setWarmth }} />`}
      </details>`;
}

function Play({
  group,
  head,
  marks,
  about,
  step,
  root,
  setRoot,
  causal,
  setCausal,
  padding,
  setPadding,
  warmth,
  setWarmth,
}) {
  const all = listing.value;
  const { value: scores } = useTensor(write({ name: step.address, head }));
  const hasBias = !!all.step(`${group}.bias`);
  const { value: bias } = useTensor(write({ name: hasBias ? `${group}.bias` : step.address, head }));
  const [rows, cols] = scores?.shape ?? [0, 0];
  const masksFuture = !!marks?.includes(FUTURE);
  const isCausal = causal ?? masksFuture;
  const scale = about.scale ?? 1;
  const made = useMemo(() => {
    if (!scores || (hasBias && !bias)) return null;
    const changed = new Float32Array(rows * cols);
    for (let n = 0; n < changed.length; n++) {
      const shift = hasBias ? bias.values[n] : 0;
      changed[n] = root ? scores.values[n] : (scores.values[n] - shift) / scale + shift;
    }
    const hides = new Uint8Array(rows * cols);
    for (let r = 0; r < rows; r++)
      for (let c = 0; c < cols; c++) {
        const own = marks?.[r * cols + c] ?? 0;
        hides[r * cols + c] =
          c >= cols - padding
            ? PADDING
            : isCausal && rows === cols && c > r
              ? FUTURE
              : own === FUTURE && !isCausal
                ? 0
                : own;
      }
    const weights = softmax(changed, rows, cols, hides, warmth);
    const own = softmax(scores.values, rows, cols, marks);
    return {
      weights,
      hides,
      now: measured(changed, weights, rows, cols, hides),
      was: measured(scores.values, own, rows, cols, marks),
    };
  }, [scores, bias, root, isCausal, padding, warmth, marks]);
  if (!made) return html`<p class="waiting">loading …</p>`;
  const words = (axis) => all.words(step, axis);
  const same = root && isCausal === masksFuture && !padding && warmth === 1;
  return html`<div class="play">
    <div class="controls">
      <label><input type="checkbox" checked=${root} disabled=${scale === 1}
        onChange=${(event) => setRoot(event.target.checked)} /> divide by √d ${scale === 1 ? html`<span class="dim">(this model does not)</span>` : html`<span class="dim">= ${number(1 / scale)}
        </span>`}</label>
      <label><input type="checkbox" checked=${isCausal} disabled=${rows !== cols}
        onChange=${(event) => setCausal(event.target.checked)} /> causal mask</label>
      <label>padding: the last <input type="number" min="0" max=${Math.max(0, cols - 1)} value=${padding}
        onInput=${(event) => setPadding(Math.max(0, Math.min(cols - 1, Number(event.target.value) || 0)))} /> keys</label>
      <label>temperature <input type="range" min="0.1" max="4" step="0.1" value=${warmth}
        onInput=${(event) => setWarmth(Number(event.target.value))} /> ${warmth.toFixed(1)}
        </label>
      <button type="button" onClick=${() => {
        setRoot(true);
        setCausal(null);
        setPadding(0);
        setWarmth(1);
      }}>as the model does it</button>
    </div>
    <dl class="measures"><div><dt>variance of the scores</dt><dd>${number(made.was.variance)} → <strong>
      ${number(made.now.variance)}</strong></dd></div><div><dt>entropy of the weights, bits a row</dt><dd>
      ${number(made.was.entropy)} → <strong>${number(made.now.entropy)}</strong></dd></div></dl>
    <p class=${same ? "tag" : "tag changed"}>
      ${same ? "as the model computed it" : "what if: not the model's own numbers"}</p>
    <${HeatMap} values=${made.weights} rows=${rows} cols=${cols} kind="share" marks=${made.hides} square tall=${360}
      title="weights, what if" rowName="query" colName="key" rowWords=${words("t")} colWords=${words("s")} />
    <p class="note">Without √d the scores spread with the width of the head, and softmax puts nearly all weight on one key. A mask sets a score to −∞, so that its weight is exactly 0. The rest of the model does not see these changes: to rerun it, drop the head or patch a row.</p>
      </div>`;
}
