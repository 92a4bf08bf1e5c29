// Why scores are divided by √d: the variance of q · k grows with d, and the softmax of large scores is all or nothing.
import { useMemo, useState } from "preact/hooks";
import { Button, Matrix, Plot, Rows, Say, Slider, html, number } from "page/lessons/kit.js";
import { entropy, mean, normals, softmax, variance } from "page/lessons/math.js";

const KEYS = 10, QUERIES = 200;
const WIDTHS = Array.from({ length: 11 }, (_, n) => 2 ** n);

/** Queries over some keys each, all numbers drawn: the variance of scores, and what the softmax makes of them. */
export function measured(d, seed) {
  const draw = normals(seed * 1000003 + d);
  const scores = Array.from({ length: QUERIES }, () => {
    const q = Array.from({ length: d }, draw);
    return Array.from({ length: KEYS }, () => {
      let total = 0;
      for (let n = 0; n < d; n++) total += q[n] * draw();
      return total;
    });
  });
  const both = [1, Math.sqrt(d)].map((divisor) => {
    const rows = scores.map((row) => row.map((x) => x / divisor));
    const weights = rows.map(softmax);
    return {
      variance: variance(rows.flat()),
      largest: mean(weights.map((row) => Math.max(...row))),
      entropy: mean(weights.map(entropy)),
      slope: mean(weights.map((row) => row.reduce((sum, w) => sum + w * (1 - w), 0))),
      first: weights[0],
    };
  });
  return { plain: both[0], scaled: both[1] };
}

export function Scaling() {
  const [power, setPower] = useState(6);
  const [seed, setSeed] = useState(0);
  const d = WIDTHS[power];
  const { plain, scaled } = useMemo(() => measured(d, seed), [d, seed]);
  const curves = useMemo(() => WIDTHS.map((each) => measured(each, seed)), [seed]);
  const line = (what, part) => curves.map((each) => each[part][what]);
  const row = (name, what) => [name, number(plain[what]), number(scaled[what])];
  return html`<section class="ls-panel" aria-label="why √d">
    <${Say} address="encoder.0.self.h0.scores" where="the scores of a head">Each q · k adds d products of variance 1, so its variance is d. Undivided and wide, one key takes all the weight and nothing is left to learn from; divided by √d the softmax stays open.</${Say}>
    <div class="ls-tools"><${Slider} name="width d" value=${power} low=${0} high=${10} show=${(n) => String(WIDTHS[n])} onChange=${setPower} />
      <${Button} onClick=${() => setSeed(seed + 1)}>Draw again</${Button}></div>
    <${Rows} label="measured" title=${`${QUERIES * KEYS} scores, drawn here`} heads=${["", "q · k", "q · k / √d"]} rows=${[
      row("variance", "variance"), row("largest weight, mean", "largest"), row(`entropy in bits (${KEYS} keys: at most ${Math.log2(KEYS).toFixed(2)})`, "entropy"), row("slope Σ w (1 − w)", "slope")]} />
    <${Matrix} title="The weights of one query" rows=${["without √d", "with √d"]} cols=${scaled.first.map((_, n) => `key ${n}`)} values=${[plain.first, scaled.first]} shade />
    <${Plot} title="Entropy of the weights" places=${WIDTHS} lines=${[{ name: "without √d", values: line("entropy", "plain") }, { name: "with √d", values: line("entropy", "scaled") }]} across="d" up="bits" log mark=${d} />
    <${Plot} title="Variance of the scores" places=${WIDTHS} lines=${[{ name: "without √d", values: line("variance", "plain") }, { name: "with √d", values: line("variance", "scaled") }]} across="d" up="variance" log steep mark=${d} />
  </section>`;
}
