// One block: the residual stream as a ribbon for every position, and what each branch adds to it.
import { useState } from "preact/hooks";
import { html, Bars, number, to, useAnswer, Waiting, word, Table, label } from "page/ui.js";
import { Tensor } from "page/tensor.js";
import { branch, explained } from "page/steps.js";
import { last } from "page/address.js";
import { listing, place, source } from "page/state.js";

/** The length of each position's vector. */
export function lengths({ values, shape }) {
  const [rows, cols] = shape;
  return Array.from({ length: rows }, (_, r) => {
    let sum = 0;
    for (let c = 0; c < cols; c++) sum += values[r * cols + c] ** 2;
    return Math.sqrt(sum);
  });
}

export function LayerLevel() {
  const all = listing.value;
  const { block } = place.value;
  const groups = [...all.groups.keys()].filter((group) => all.block(group) === block);
  const sums = groups
    .map((group) => ({ group, sum: all.step(`${group}.sum`) }))
    .filter((each) => each.sum?.operands.length >= 2);
  return html`<section class="level"><header class="level-head"><h2>${block}</h2>
    <p>The stream runs from top to bottom, one ribbon a position; each branch reads it and adds to it.</p></header>
    ${sums.length > 0 && html`<${Ribbons} key=${block} sums=${sums} />`}
    <div class="branches">${groups.map((group) => html`<${Branch} key=${group} group=${group} all=${all} />`)}</div>
  </section>`;
}

function Ribbons({ sums }) {
  const all = listing.value;
  const names = [sums[0].sum.operands[0], ...sums.flatMap(({ sum }) => [sum.operands[1], sum.address])];
  const { value, error } = useAnswer(
    () => Promise.all(names.map((name) => source.value.tensor(name))),
    [source.value, names.join()],
  );
  const [at, setAt] = useState(0);
  if (!value) return html`<${Waiting} error=${error} what="the stream" />`;
  const norms = value.map(lengths);
  const words = all.words(sums[0].sum, "t");
  const shown = Math.min(norms[0].length, 40);
  const from = Math.min(at, norms[0].length - shown);
  const stages = [norms[0], ...sums.map((_, n) => norms[2 * n + 2])];
  const top = Math.max(...stages.flat(), 1e-9);
  const wide = 34,
    tall = 92,
    left = 118,
    head = 44;
  const half = (norm) => Math.max(0.75, (norm / top) * wide * 0.46);
  const y = (stage) => head + stage * tall;
  const x = (n) => left + (n - from + 0.5) * wide;
  const height = y(stages.length - 1) + 24;
  const columns = [...Array(shown).keys()].map((n) => n + from);
  const ribbon = (n) => {
    const points = stages.map((stage, s) => [half(stage[n]), y(s)]);
    const curve = (list, sign) =>
      list
        .map(([w, v], s) =>
          s
            ? `C${x(n) + sign * list[s - 1][0]},${v - tall / 2} ${x(n) + sign * w},${v - tall / 2} ${x(n) + sign * w},${v}`
            : "",
        )
        .join("");
    return (
      `M${x(n) - points[0][0]},${y(0)}${curve(points, -1)}L${x(n) + points.at(-1)[0]},${points.at(-1)[1]}` +
      points
        .toReversed()
        .map(([w, v], s, list) =>
          s ? `C${x(n) + list[s - 1][0]},${v + tall / 2} ${x(n) + w},${v + tall / 2} ${x(n) + w},${v}` : "",
        )
        .join("") +
      "Z"
    );
  };
  return html`<figure class="ribbons">
    <div class="scroll-x" tabindex="0" role="region" aria-label="the residual stream">
    <svg width=${left + shown * wide + 12} height=${height} role="group"
      aria-label="the length of the stream at every position, before and behind each branch">
      ${sums.map(({ group }, n) => html`<g>
        <rect class="lane" x="2" y=${y(n) + 20} width=${left + shown * wide} height=${tall - 40} rx="6" />
        <a href=${to(group)}><text class="lane-name" x="12" y=${y(n) + tall / 2 + 4}>${branch(last(group))}</text></a>
        </g>`)}
      ${["in", ...sums.map(({ group }) => `+ ${last(group)}`)].map((name, s) => html`<text class="stage-name" x="12"
        y=${y(s) + (s ? 12 : -4)}>
        ${name}</text>`)}
      ${columns.map(
        (
          n,
        ) => html`<g key=${n}><text class="tick" transform=${`translate(${x(n) - 2},${head - 12}) rotate(-38)`}>
          ${words ? label(n, words) : n}</text><path class="ribbon" d=${ribbon(n)} />
        ${sums.map(({ group }, s) => html`<a href=${to(`${sums[s].sum.operands[1]}[${n}]`)}
          aria-label=${`${group} at position ${n}: ${number(norms[2 * s + 1][n])}`}>
          <rect class=${`added ${last(group)}`} x=${x(n) - half(norms[2 * s + 1][n])} y=${y(s) + tall / 2 - 5}
            width=${2 * half(norms[2 * s + 1][n])} height="10" rx="2" />
          </a>`)}</g>`,
      )}
    </svg></div>
    <figcaption>Width is the length ‖x‖ of each position's vector, at most ${number(top)}; the bars are what a branch adds. It does not show the direction.
      ${norms[0].length > shown && html` <label>from position <input type="number" min="0"
        max=${norms[0].length - shown} value=${from} onInput=${(event) => setAt(Number(event.target.value) || 0)} />
        </label>`}
      <details><summary>table</summary>
        <${Table} label="lengths"
          heads=${["position", "in", ...sums.flatMap(({ group }) => [`${last(group)} adds`, "then"])]}
          rows=${columns.map((n) => [words ? label(n, words) : n, ...norms.map((each) => number(each[n]))])} />
        </details></figcaption></figure>`;
}

function Branch({ group, all }) {
  const steps = all.groups.get(group);
  const own = last(group);
  return html`<article class="branch-card"><h3><a href=${to(group)}>${branch(own)}</a></h3>
    <ol class="steps">${steps.map((step) => html`<li><a href=${to(step.address)}>${last(step.address)}
      </a> <span class="dim">${step.shape.join(" × ")}</span>
      ${step.changed ? html` <span class="tag changed">changed</span>` : ""}</li>`)}</ol></article>`;
}

/** A branch that is no attention, the embedding or the head: its steps one below the other. */
export function PartLevel() {
  const all = listing.value;
  const { group } = place.value;
  const steps = all.groups.get(group);
  const active = steps.find((step) => last(step.address) === "active" && step.axes.length === 2);
  return html`<section class="level"><header class="level-head"><h2>${branch(last(group))}</h2><p><code>${group}
    </code></p></header>
    ${active && html`<${Position} key=${group} step=${active} />`}
    <div class="flow">${steps.map(
      (
        step,
      ) => html`<article class="panel" key=${step.address}><h3><a href=${to(step.address)}>${last(step.address)}</a>
        </h3><p class="dim">${explained(step.address).sentence}</p>
      <${Tensor} name=${step.address} title=${step.address} tall=${step.axes.length > 1 ? 160 : 110} /></article>`,
    )}</div></section>`;
}

/** One position's feed-forward layer: its loudest inner numbers. */
function Position({ step }) {
  const words = listing.value.words(step, "t");
  const [at, set] = useState(Math.max(0, step.shape[0] - 1));
  const n = Math.min(at, step.shape[0] - 1);
  const { value } = useAnswer(() => source.value.tensor(step.address), [source.value, step.address]);
  const wide = step.shape[1];
  const row = value ? [...value.values.subarray(n * wide, (n + 1) * wide)] : [];
  const order = row
    .map((_, c) => c)
    .sort((a, b) => Math.abs(row[b]) - Math.abs(row[a]))
    .slice(0, 12);
  const quiet = row.filter((each) => Math.abs(each) < 0.01).length;
  return html`<article class="panel"><h3>One position, alone</h3>
    <label class="chooser">position <input type="number" min="0" max=${step.shape[0] - 1} value=${n}
      onInput=${(event) => set(Number(event.target.value) || 0)} /> ${words ? html`<bdi>
    ${word(words[n])}</bdi>` : ""}</label>
    ${value && html`<p class="dim">The loudest of ${wide} inner numbers; ${quiet} are near 0.</p>
      <${Bars} label="the loudest inner numbers"
        items=${order.map((c) => ({ name: `inner feature ${c}`, value: row[c], href: to(`${step.address}[${n},${c}]`) }))} />`}
      </article>`;
}
