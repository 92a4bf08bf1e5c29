// One head: X → Q, K, V → scores → mask → softmax → × V, side by side; what is pointed at in one lights up in the others.
import { useMemo } from "preact/hooks";
import { signal } from "@preact/signals";
import { html, to } from "page/ui.js";
import { Tensor } from "page/tensor.js";
import { Picture } from "page/tokens.js";
import { explained } from "page/steps.js";
import { last, write } from "page/address.js";
import { go } from "page/route.js";
import { useMarks } from "page/visible.js";
import { useLabels } from "page/levels/attention.js";
import { WhatIf } from "page/whatif.js";
import { Drop } from "page/change.js";
import { useTensor } from "page/tensor.js";
import { listing, place, step as decoding } from "page/state.js";

const ROLE = { t: "q", s: "k", r: "k", d: "d" };
const BETWEEN = {
  scores: "Q Kᵀ ÷ √d",
  weights: "+ mask, then softmax of each row",
  mixed: "× V",
  bias: "positions",
  mixture: "positions",
};

export function HeadLevel() {
  const all = listing.value;
  const { group, head } = place.value;
  const about = all.facts.attentions?.[group] ?? {};
  const link = useMemo(() => signal({}), [group, head.join("")]);
  const marks = useMarks(group);
  const label = useLabels(group)[head[1]];
  const ofKeys = head[0] === "g";
  const steps = all.groups
    .get(group)
    .filter((step) => step.axes.some((axis) => axis === "h" || axis === "g") && (!ofKeys || step.axes.includes("g")));
  const input = all.step(`${group}.q`)?.operands[0];
  const matrix = (step) => step.axes.includes("t") && (step.axes.includes("s") || step.axes.at(-1) === "r");
  const own = ofKeys ? head[1] : Math.floor((head[1] * all.heads(group).keys) / all.heads(group).queries);
  return html`<section class="level"><header class="level-head"><h2>
    ${ofKeys ? "key head" : "head"} ${head[1]}${label?.label ? html` <span class="tag">${label.label}</span>` : ""}</h2>
      <p><code>${write({ name: group, head }, false)}</code>
        ${all.heads(group).keys < all.heads(group).queries && !ofKeys ? html` reads the keys of <a href=${to(`${group}.g${own}`)}>key head ${own}
        </a>` : ""}${about.scale ? html` · scale ${about.scale === 1 ? "1" : `1/√${Math.round(1 / about.scale ** 2)}`}` : ""}${about.compressed ? " · the keys are compressed: columns are no positions" : ""}
        </p>
      ${!ofKeys && html`<${Drop} address=${`${group}.h${head[1]}.mixed`} name=${`head ${head[1]}`} />`}</header>
    <div class="pipeline">
      ${input && all.step(input)?.axes.length === 2 && html`<article class="panel narrow"><h3>X <span class="dim">
        ${last(input)}</span></h3><p class="dim">what the head reads</p>
        <${Tensor} name=${input} title="" tall=${220} link=${link} roles=${["q", null]} /></article>`}
      ${steps.map((step) => {
        const name = last(step.address);
        const square = matrix(step);
        const axes = step.axes.filter((axis) => axis !== "h" && axis !== "g");
        const open =
          square && ["weights", "scores"].includes(name) && !ofKeys
            ? (r, c) =>
                go({
                  a: write({ name: `${group}.weights`, head, cells: [r] }),
                  k: c,
                  p: write({ name: step.address, head, cells: [r, c] }),
                  v: null,
                })
            : undefined;
        return html`<article key=${step.address} class=${square && step.shape.at(-1) > 9 ? "panel wide" : "panel"} data-step=${name}>
          <h3>${BETWEEN[name] && html`<span class="then">${BETWEEN[name]} → </span>`}
            <a href=${to(write({ name: step.address, head }))}>${name}</a></h3><p class="dim">
            ${explained(step.address).sentence}</p>
          <${Tensor} name=${step.address} head=${head} title="" tall=${square ? 420 : 220} link=${link}
            roles=${axes.map((axis) => ROLE[axis] ?? null)}
            marks=${square && name === "weights" ? marks : null} ...${open ? { onOpen: open } : {}} />
            </article>`;
      })}
    </div>
    ${all.run.picture && all.run.grid && !ofKeys && html`<${OnPicture} name=${`${group}.weights`} head=${head} link=${link} />`}
    ${!ofKeys && html`<${WhatIf} key=${group + head[1]} group=${group} head=${head} marks=${marks} about=${about} />`}
  </section>`;
}

/** Where one query looks on the picture. */
function OnPicture({ name, head, link }) {
  const all = listing.value;
  const { value } = useTensor(write({ name, head }));
  const [rows, columns] = all.run.grid;
  if (!value) return null;
  const cols = value.shape[1];
  const skip = cols - rows * columns;
  if (skip < 0) return null;
  const row = link.value.q ?? (all.run.choices ? all.position(decoding.value) : 0);
  return html`<article class="panel"><h3>on the picture</h3>
    <p class="dim">the weights of query ${row}; point at a row above for another</p>
    <${Picture} picture=${all.run.picture} grid=${all.run.grid}
      weights=${[...value.values.subarray(row * cols + skip, (row + 1) * cols)]} />
    </article>`;
}
