// What attention costs: pairs of a query and a key that are computed, counted, and the memory of their scores.
import { useMemo, useState } from "preact/hooks";
import { Choice, Plot, Rows, Say, Slider, html } from "page/lessons/kit.js";
import { bigbird, near } from "page/lessons/math.js";

const RANK = 64;
const WAYS = [
  ["all pairs: n²", (n) => n * n],
  ["window of radius 24", (n) => near(n)],
  ["BigBird: window, 2 global words, 3 random blocks of 16", (n) => bigbird(n)],
  [`Linformer of rank ${RANK}: ${RANK} n`, (n) => n * RANK],
];
const LENGTHS = Array.from({ length: 8 }, (_, n) => 2 ** (n + 6));
const whole = (x) => x.toLocaleString("en-US");
const bytes = (x) => {
  const units = ["B", "kB", "MB", "GB", "TB"];
  const n = Math.min(4, Math.max(0, Math.floor(Math.log(x) / Math.log(1000))));
  return `${(x / 1000 ** n).toPrecision(3)} ${units[n]}`;
};

export function Cost() {
  const [power, setPower] = useState(22); // quarters of a power of two
  const [heads, setHeads] = useState("8");
  const n = Math.round(2 ** (power / 2));
  const counts = useMemo(() => WAYS.map(([, count]) => count(n)), [n]);
  const twice = useMemo(() => WAYS.map(([, count]) => count(2 * n)), [n]);
  const lines = useMemo(() => WAYS.map(([name, count]) => ({ name, values: LENGTHS.map((each) => count(each) / each) })), []);
  return html`<section class="ls-panel" aria-label="cost of attention">
    <${Say} address="encoder.0.self.weights" where="all pairs of one layer">Twice the words are four times the pairs, but about twice with the other three. BigBird leaves pairs out; Linformer presses all keys into ${RANK}.</${Say}>
    <div class="ls-tools"><${Slider} name="words n" value=${power} low=${8} high=${32} show=${(x) => whole(Math.round(2 ** (x / 2)))} onChange=${setPower} />
      <${Choice} name="heads" value=${heads} options=${["1", "4", "8", "16", "32"].map((each) => [each, each])} onChange=${setHeads} /></div>
    <${Rows} label="pairs" title=${`Pairs at n = ${whole(n)}`} heads=${["", "pairs", "share of n²", "scores in memory, float32", "with twice the words"]} rows=${WAYS.map(([name], k) => [
      name, html`<span data-value=${String(counts[k])}>${whole(counts[k])}</span>`, html`<meter min="0" max="1" value=${counts[k] / counts[0]} aria-label=${`${name}, share`}></meter> ${(100 * counts[k] / counts[0]).toFixed(counts[k] * 100 < counts[0] ? 2 : 0)} %`, bytes(counts[k] * 4 * Number(heads)), `× ${(twice[k] / counts[k]).toFixed(2)}`])} />
    <${Plot} title="Pairs a word" places=${LENGTHS} lines=${lines} across="words" up="pairs / n" log steep mark=${Math.max(64, Math.min(8192, n))} />
    <p class="ls-ours">sizes as in the example of the notes; counted with the same random draws as the model's. A kernel that works tile by tile does not keep all scores at once: it saves the memory, not the pairs. Short texts can cost more with rank ${RANK} than with all pairs.</p>
  </section>`;
}
