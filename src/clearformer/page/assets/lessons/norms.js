// Layer norm against batch norm on a padded batch: which numbers enter each mean.
import { useState } from "preact/hooks";
import { Button, Choice, Matrix, Rows, Say, Slider, edited, html, number } from "page/lessons/kit.js";
import { map, mean, transpose, variance } from "page/lessons/math.js";

const LONG = [[2, 5, 3], [4, 1, 6], [3, 3, 3], [5, 2, 8], [1, 4, 2]];
const SHORT = [[6, 3, 4], [2, 7, 1], [4, 5, 7]];
const FEATURES = ["f1", "f2", "f3"];
const EPS = 1e-5;
const SHOWN = 4; // rows of padding that are drawn

const normed = (list) => {
  const [middle, spread] = [mean(list), variance(list)];
  return list.map((x) => (x - middle) / Math.sqrt(spread + EPS));
};
export const layerNorm = (x) => x.map(normed);
export const batchNorm = (x) => transpose(transpose(x).map(normed));

export function Norms() {
  const [words, set] = useState([...LONG, ...SHORT]);
  const [pads, setPads] = useState(2);
  const [feature, setFeature] = useState("0");
  const f = Number(feature);
  const batch = [...words, ...Array.from({ length: pads }, () => [0, 0, 0])];
  const rows = [...LONG.map((_, n) => `A, word ${n + 1}`), ...SHORT.map((_, n) => `B, word ${n + 1}`), ...Array.from({ length: Math.min(pads, SHOWN) }, () => "B, padding")];
  const shown = (x) => x.slice(0, rows.length);
  const [byBatch, byLayer, alone] = [batchNorm(batch), layerNorm(batch), batchNorm(words)];
  const moved = (a, b) => Math.max(...map(words, (_, r, c) => Math.abs(a[r][c] - b[r][c])).flat());
  const padding = (r) => (r >= words.length ? "padding" : "");
  const column = words.map((row) => row[f]);
  const full = batch.map((row) => row[f]);
  const list = (numbers) => `${numbers.slice(0, 12).join(", ")}${numbers.length > 12 ? ` … ${numbers.length} numbers` : ""}`;
  return html`<section class="ls-panel" aria-label="layer norm against batch norm">
    <${Say} address="encoder.0.self.before" where="the layer norm before an attention">Batch norm's mean runs down a column, through the padding too: add padding and the vectors of real words change. Layer norm's mean runs along a row, so each word is normed by itself.</${Say}>
    <div class="ls-tools"><${Slider} name="rows of padding" value=${pads} low=${0} high=${100} onChange=${setPads} />
      <${Choice} name="look at" value=${feature} options=${FEATURES.map((each, n) => [String(n), each])} onChange=${setFeature} />
      <${Button} onClick=${() => { set([...LONG, ...SHORT]); setPads(2); }}>Reset</${Button}></div>
    <div class="ls-beside"><${Matrix} title="the batch" values=${shown(batch)} rows=${rows} cols=${FEATURES} hidden=${padding} onEdit=${(r, c, value) => set(edited(words, r, c, value))}
        note=${pads > SHOWN ? `and ${pads - SHOWN} more rows of padding` : ""} />
      <${Matrix} title="batch norm" values=${shown(byBatch)} rows=${rows} cols=${FEATURES} picked=${(r, c) => c === f} />
      <${Matrix} title="layer norm" values=${shown(byLayer)} rows=${rows} cols=${FEATURES} picked=${(r) => r === LONG.length} /></div>
    <${Rows} label="what enters each mean" title="What enters each mean" heads=${["norm", "of", "numbers", "mean", "variance"]} rows=${[
      ["batch, padded", FEATURES[f], list(full), number(mean(full)), number(variance(full))],
      ["batch, words only", FEATURES[f], list(column), number(mean(column)), number(variance(column))],
      ["layer", "B, word 1", list(words[LONG.length]), number(mean(words[LONG.length])), number(variance(words[LONG.length]))]]} />
    <p class="ls-result" role="status">Padding moves the vectors of real words by up to <b data-value=${String(moved(byBatch, alone))}>${number(moved(byBatch, alone))}</b> with batch norm and by <b>${number(moved(byLayer, layerNorm(words)))}</b> with layer norm.</p>
  </section>`;
}
