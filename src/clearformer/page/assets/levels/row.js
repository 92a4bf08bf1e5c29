// One query: its scores and weights on all keys, q ⊙ k of one of them as bars, and the values it takes, added up.
import { useMemo } from "preact/hooks";
import { signal } from "@preact/signals";
import { html, Bars, HeatMap, label, number, spoken, to, useAnswer, Waiting } from "page/ui.js";
import { write } from "page/address.js";
import { go, route } from "page/route.js";
import { useMarks } from "page/visible.js";
import { Patch } from "page/change.js";
import { listing, place, source } from "page/state.js";

export function RowLevel() {
  const all = listing.value;
  const { group, head, cells, step } = place.value;
  const [t] = cells;
  const short = !!all.step(`${group}.short_k`);
  const at = (name, own = []) => write({ name: `${group}.${name}`, head, cells: own });
  const bias = all.step(`${group}.bias`) ? at("bias", [t]) : null;
  const asked = [
    at("weights", [t]),
    at("scores", [t]),
    at("q", [t]),
    at(short ? "short_k" : "k"),
    at(short ? "short_v" : "v"),
    at("mixed", [t]),
    ...(bias ? [bias] : []),
  ];
  const { value, old, error } = useAnswer(
    () => Promise.all(asked.map((name) => source.value.tensor(name))),
    [source.value, asked.join()],
  );
  const marks = useMarks(group);
  const found = value ?? old;
  if (!found) return html`<${Waiting} error=${error} what="the row" />`;
  return html`<${Row} ...${{ found, group, head, t, step, short, marks, all, at }} />`;
}

function Row({ found, group, head, t, step, short, marks, all, at }) {
  const [weights, scores, q, keys, values, mixed, bias] = found.map((each) => each.values);
  const n = weights.length,
    d = q.length;
  const scale = all.facts.attentions?.[group]?.scale ?? 1;
  const words = short ? null : all.words(step, "s");
  const mine = marks ? marks.subarray(t * n, (t + 1) * n) : null;
  const best = weights.indexOf(Math.max(...weights));
  const k = Math.max(0, Math.min(n - 1, route.value.k !== undefined ? Number(route.value.k) || 0 : best));
  const link = useMemo(() => signal({}), []);
  const products = useMemo(() => Float32Array.from(q, (each, i) => each * keys[k * d + i]), [q, keys, k]);
  const sum = products.reduce((a, b) => a + b, 0);
  const brought = useMemo(
    () => Float32Array.from(values, (each, i) => each * weights[Math.floor(i / d)]),
    [values, weights],
  );
  const order = [...weights.keys()].sort((a, b) => weights[b] - weights[a]).slice(0, 8);
  const pick = (c) =>
    c === k ? go({ a: at("weights", [t, c]), k: null, p: null }) : go({ k: c, p: at("weights", [t, c]) });
  const axis = short ? "compressed key" : "key";
  return html`<section class="level"><header class="level-head"><h2>query ${label(t, all.words(step, "t"))}</h2><p>
    <code>${at("weights", [t])}
    </code> · choose a ${axis} to see how its score came about, and open it once more for its equation</p>
      <${Patch} address=${at("weights", [t])} size=${n} picked=${k} seen=${mine} /></header>
    <div class="row-grid">
      <article class="panel wide"><h3>scores</h3><p class="dim">q · k ÷ √d${bias ? " + bias" : ""} for every ${axis}
        </p><${HeatMap} values=${scores} rows=${1} cols=${n} bars tall=${90} marks=${mine} colName=${axis}
          colWords=${words} link=${link} roles=${[null, "k"]} picked=${[0, k]} title=""
          address=${(_, c) => at("scores", [t, c])} onOpen=${(_, c) => pick(c)} />
        </article>
      <article class="panel wide"><h3>weights</h3>
        <p class="dim">their softmax: sums to <span data-sum=${String(weights.reduce((a, b) => a + b, 0))}>
        ${number(weights.reduce((a, b) => a + b, 0))}</span></p>
        <${HeatMap} values=${weights} rows=${1} cols=${n} kind="share" bars tall=${90} marks=${mine} colName=${axis}
          colWords=${words} link=${link} roles=${[null, "k"]} picked=${[0, k]} title=""
          address=${(_, c) => at("weights", [t, c])} onOpen=${(_, c) => pick(c)} />
        </article>
      <article class="panel"><h3>most weight</h3>
        <${Bars} label="keys with most weight" most=${1}
          items=${order.map((c) => ({ name: words ? label(c, words) : `${axis} ${c}`, value: weights[c], href: to(at("weights", [t, c])), chosen: c === k }))} />
        </article>
      <article class="panel wide"><h3>q ⊙ k</h3>
        <p class="dim">query ${t} times ${spoken(axis, k, words)}, feature by feature</p>
        <${HeatMap} values=${products} rows=${1} cols=${d} bars tall=${110} colName="head feature" title=""
          link=${link} roles=${[null, "d"]} onOpen=${(_, c) => go({ a: at("q", [t, c]), k: null, p: null })} />
        <p class="sum-line">Σ <a href=${to(at("q", [t]))}>q</a> ⊙ <a href=${to(at(short ? "short_k" : "k", [k]))}>k</a> = <strong>
          ${number(sum)}</strong>${scale !== 1 ? html` · × ${number(scale)} = <strong>${number(sum * scale)}
          </strong>` : ""}${bias ? html` · + <a href=${to(at("bias", [t, k]))}>bias ${number(bias[k])}
          </a>` : ""} → <a href=${to(at("scores", [t, k]))} data-value=${String(scores[k])}>score ${number(scores[k])}
          </a> → <a href=${to(at("weights", [t, k]))} data-value=${String(weights[k])}>weight ${number(weights[k])}
          </a></p></article>
      <article class="panel wide"><h3>weight × value</h3>
        <p class="dim">each row is a value times its weight; the rows add up to what the head brings here</p>
        <${HeatMap} values=${brought} rows=${n} cols=${d} tall=${Math.min(320, 22 * n)} rowName=${axis}
          colName="head feature" rowWords=${words} link=${link} roles=${["k", "d"]} title=""
          onOpen=${(r, c) => go({ a: at(short ? "short_v" : "v", [r, c]), k: null, p: null })} />
        </article>
      <article class="panel wide"><h3>mixed</h3>
        <p class="dim">the sum${all.step(`${group}.mixture`) ? ", with what distances add" : ""}</p>
        <${HeatMap} values=${mixed} rows=${1} cols=${d} bars tall=${90} colName="head feature" title="" link=${link}
          roles=${[null, "d"]} address=${(_, c) => at("mixed", [t, c])}
          onOpen=${(_, c) => go({ a: at("mixed", [t, c]), k: null, p: null })} />
        </article>
    </div></section>`;
}
