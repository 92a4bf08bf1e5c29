// The matrix lab: attention on matrices small enough to follow, with the notes' own numbers to begin with.
import { useState } from "preact/hooks";
import { Button, Choice, Matrix, Say, Toggle, edited, html, number } from "page/lessons/kit.js";
import { attention, identity, matmul } from "page/lessons/math.js";

const names = (word, count) => Array.from({ length: count }, (_, n) => `${word} ${n + 1}`);
const MONEY = { words: ["money", "bank", "grows"], x: [[2, 0, 0], [1, 1, 0], [1, 0, 1]] };

/** Either x and the three weights, or q, k and v as they are. `divisor`: a number, or √ of the width of queries. */
export const SEEDS = {
  numerical: {
    title: "N2: three inputs",
    words: ["input 1", "input 2", "input 3"],
    x: [[1, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]],
    wq: [[1, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 1]],
    wk: [[0, 0, 1], [1, 1, 0], [0, 1, 0], [1, 1, 0]],
    wv: [[0, 2, 0], [0, 3, 0], [1, 0, 3], [1, 1, 0]],
    divisor: "sqrt",
  },
  softmax: {
    title: "N1: The cat sat",
    words: ["The", "cat", "sat"],
    queries: ["The"],
    q: [[1, 0, 1, 0]],
    k: [[1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]],
    v: [[1, 0, 1, 0], [0, 1, 0, 1], [0, 1, 1, 0]],
    divisor: "sqrt",
    ours: "the keys are ours: they give the scores 2, 0, 2, which divided by √4 are the notes' 1, 0, 1.",
  },
  bank: { title: "N3: money bank grows, without parameters", ...MONEY, wq: identity(3), wk: identity(3), wv: identity(3), divisor: 1, ours: "the embeddings are ours." },
  parameters: {
    title: "N3: money bank grows, with W_Q, W_K and W_V",
    ...MONEY,
    wq: [[1, 0], [0, 1], [1, 1]],
    wk: [[1, 0], [1, 1], [0, 1]],
    wv: [[1, 0], [0, 1], [1, 1]],
    divisor: "sqrt",
    ours: "embeddings and matrices are ours.",
  },
  "hash-table": {
    title: "N2: a soft hash table",
    words: ["key-a", "key-b", "key-c", "key-d"],
    queries: ["query"],
    q: [[0, 0.6, 1, 0.2]],
    k: identity(4),
    v: [[10, 0], [0, 10], [20, 20], [30, 0]],
    divisor: 1,
    ours: "keys, values and the query are ours. Divide by 0.1 and the lookup gets hard.",
  },
};

export function Lab({ seed = "numerical" }) {
  const [name, setName] = useState(seed);
  const [given, set] = useState(SEEDS[seed]);
  const [masks, setMasks] = useState({ causal: false, padding: false });
  const [at, setAt] = useState([0, 0]);
  const start = (chosen) => {
    setName(chosen);
    set(SEEDS[chosen]);
    setMasks({ causal: false, padding: false });
    setAt([0, 0]);
  };
  const change = (part) => (r, c, value) => set({ ...given, [part]: edited(given[part], r, c, value) });
  const own = Boolean(given.x);
  const [q, k, v] = own ? [given.wq, given.wk, given.wv].map((w) => matmul(given.x, w)) : [given.q, given.k, given.v];
  const width = q[0].length;
  const divisor = given.divisor === "sqrt" ? Math.sqrt(width) : given.divisor;
  const keys = given.words;
  const queries = given.queries ?? keys;
  const why = (r, c) => (masks.causal && c > r ? "future" : masks.padding && c === keys.length - 1 ? "padding" : "");
  const steps = attention({ q, k, v, divisor, hidden: (r, c) => why(r, c) !== "" });
  const [qn, kn] = [Math.min(at[0], q.length - 1), Math.min(at[1], k.length - 1)];
  const grid = { rows: queries, cols: keys, axes: "queries ↓ keys →", picked: (r, c) => r === qn && c === kn };
  return html`<section class="ls-panel" aria-label="matrix lab">
    <${Say} address="encoder.0.self.h0" where="the first head of the first layer">Change any number in a box and every step below follows. All is computed here, in double precision.</${Say}>
    <div class="ls-tools"><${Choice} name="Begin with" value=${name} options=${Object.entries(SEEDS).map(([key, each]) => [key, each.title])} onChange=${start} />
      <${Button} onClick=${() => start(name)}>Reset</${Button}></div>
    ${given.ours && html`<p class="ls-ours">${given.ours}</p>`}
    ${own && html`<h3>1 · Inputs and weights</h3><div class="ls-beside">
      <${Matrix} title="X" values=${given.x} rows=${keys} onEdit=${change("x")} />
      <${Matrix} title="W_Q" values=${given.wq} onEdit=${change("wq")} /><${Matrix} title="W_K" values=${given.wk} onEdit=${change("wk")} /><${Matrix} title="W_V" values=${given.wv} onEdit=${change("wv")} /></div>`}
    <h3>${own ? "2 · Q = X W_Q, K = X W_K, V = X W_V" : "1 · Queries, keys and values"}</h3><div class="ls-beside">
      <${Matrix} title="Q" values=${q} rows=${queries} onEdit=${own ? null : change("q")} /><${Matrix} title="K" values=${k} rows=${keys} onEdit=${own ? null : change("k")} /><${Matrix} title="V" values=${v} rows=${keys} onEdit=${own ? null : change("v")} /></div>
    <h3>Scores, divided and masked</h3>
    <div class="ls-tools"><${Divide} given=${given} width=${width} set=${set} />
      <${Toggle} name="causal mask" on=${masks.causal} onChange=${(causal) => setMasks({ ...masks, causal })} />
      <${Toggle} name=${`“${keys.at(-1)}” is padding`} on=${masks.padding} onChange=${(padding) => setMasks({ ...masks, padding })} /></div>
    <div class="ls-beside"><${Matrix} title="Q Kᵀ" values=${steps.scores} ...${grid} />
      <${Matrix} title=${`Q Kᵀ / ${given.divisor === "sqrt" ? `√${width}` : divisor}`} values=${steps.scaled} ...${grid} />
      ${(masks.causal || masks.padding) && html`<${Matrix} title="masked" values=${steps.masked} hidden=${why} ...${grid} />`}</div>
    <h3>Weights: the softmax of each row</h3>
    <${Matrix} title="weights" values=${steps.weights} shade ...${grid} />
    <h3>Output = weights · V</h3>
    <${Matrix} title="output" values=${steps.mixed} rows=${queries} picked=${(r) => r === qn} />
    <h3>One cell, written out</h3>
    <div class="ls-tools"><${Choice} name="query" value=${String(qn)} options=${queries.map((each, n) => [String(n), each])} onChange=${(n) => setAt([Number(n), kn])} />
      <${Choice} name="key" value=${String(kn)} options=${keys.map((each, n) => [String(n), each])} onChange=${(n) => setAt([qn, Number(n)])} /></div>
    <${Written} ...${{ q: q[qn], k: k[kn], v, steps, divisor, qn, kn }} />
  </section>`;
}

function Divide({ given, width, set }) {
  const root = given.divisor === "sqrt";
  return html`<${Toggle} name=${`divide by √${width} = ${number(Math.sqrt(width))}`} on=${root} onChange=${(on) => set({ ...given, divisor: on ? "sqrt" : 1 })} />
    ${!root && html`<label class="ls-choice"><span>divide by</span> <input class="ls-cell" type="number" min="0.001" step="any" value=${given.divisor}
      onInput=${(event) => event.target.valueAsNumber > 0 && set({ ...given, divisor: event.target.valueAsNumber })} /></label>`}`;
}

function Written({ q, k, v, steps, divisor, qn, kn }) {
  const short = (x) => (x < 0 ? `(${number(x)})` : Number.isInteger(x) ? String(x) : number(x));
  const row = steps.masked[qn];
  const seen = row.filter((x) => x !== -Infinity);
  const weight = steps.weights[qn];
  const power = (x) => `e^${short(x)}`;
  return html`<ol class="ls-written">
    <li>score = ${q.map((x, n) => `${short(x)} · ${short(k[n])}`).join(" + ")} = <b>${number(steps.scores[qn][kn])}</b></li>
    <li>divided = ${short(steps.scores[qn][kn])} / ${number(divisor)} = <b>${number(steps.scaled[qn][kn])}</b></li>
    <li>weight = ${row[kn] === -Infinity ? "e^−∞" : power(row[kn])} / (${seen.map(power).join(" + ") || "nothing"}) = <b>${number(weight[kn])}</b></li>
    <li>output, first number = ${v.map((each, n) => `${number(weight[n])} · ${short(each[0])}`).join(" + ")} = <b>${number(steps.mixed[qn][0])}</b></li></ol>`;
}
