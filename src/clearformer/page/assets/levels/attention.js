// One attention: all its heads side by side, grouped by the keys they share, then side by side as one vector, then W_O.
import { html, Thumb, to, useAnswer, Waiting } from "page/ui.js";
import { Tensor } from "page/tensor.js";
import { branch, explained } from "page/steps.js";
import { last } from "page/address.js";
import { useMarks } from "page/visible.js";
import { listing, place, source } from "page/state.js";

const HEAVY = 4_000_000; // numbers of one attention: beyond, small pictures are made where the numbers are
const WIDE = 138; // of a picture

export function AttentionLevel() {
  const all = listing.value;
  const { group } = place.value;
  const about = all.facts.attentions?.[group] ?? {};
  const { queries, keys } = all.heads(group);
  const shared = queries / keys;
  const steps = all.groups.get(group).filter((step) => !step.axes.some((axis) => axis === "h" || axis === "g"));
  const labels = useLabels(group);
  const groups = [...Array(keys).keys()];
  return html`<section class="level"><header class="level-head"><h2>${branch(last(group))}</h2><p><code>${group}
    </code> · ${queries} heads${shared > 1 ? `, ${keys} of keys and values: each is read by ${shared} heads` : ""}
      ${about.head_width ? ` · width ${about.head_width}` : ""}${about.pattern && about.pattern !== "everyone" ? ` · ${about.pattern}` : ""}${about.positions ? ` · ${about.positions} positions` : ""}${about.compressed ? " · compressed keys" : ""}
        </p></header>
    <p class="axes-line">queries ↓ keys →</p>
    <div class=${shared > 1 ? "head-groups" : "head-grid"}>${
      shared > 1
        ? groups.map(
            (g) =>
              html`<fieldset key=${g}><legend>key head ${g}</legend><div class="head-grid">
                ${[...Array(shared).keys()].map((n) => html`<${HeadCard} key=${n} group=${group}
                  head=${g * shared + n} label=${labels[g * shared + n]} />`)}
                </div></fieldset>`,
          )
        : groups.map((n) => html`<${HeadCard} key=${n} group=${group} head=${n} label=${labels[n]} />`)
    }</div>
    <div class="flow">${steps.map((step) => html`<article class="panel" key=${step.address}><h3>
      <a href=${to(step.address)}>${last(step.address)}</a></h3><p class="dim">${explained(step.address).sentence}</p>
      <${Tensor} name=${step.address} title="" tall=${190} /></article>`)}</div>
  </section>`;
}

/** What heads look at, where it is known. Of a long text one attention is asked about, and once its pictures are there. */
export function useLabels(group) {
  const all = listing.value;
  const { value } = useAnswer(async () => {
    const heavy = size(all, group) > HEAVY;
    await (heavy ? pictures(group) : source.value.tensor(`${group}.weights`)).catch(() => null);
    return source.value.ask("heads", heavy ? { address: group } : {});
  }, [source.value, group]);
  const found = {};
  for (const head of value?.heads ?? []) {
    const at = head.address.lastIndexOf(".h");
    if (head.address.slice(0, at) === group) found[Number(head.address.slice(at + 2))] = head;
  }
  return found;
}

const size = (all, group) => all.step(`${group}.weights`).shape.reduce((a, b) => a * b);
const pictures = (group) => source.value.pooled(`${group}.weights`, 2 * WIDE);

function HeadCard({ group, head, label }) {
  const all = listing.value;
  const [, rows, cols] = all.step(`${group}.weights`).shape;
  const heavy = size(all, group) > HEAVY;
  const { value, error } = useAnswer(
    () => (heavy ? pictures(group) : source.value.tensor(`${group}.weights`)),
    [source.value, group],
  );
  const marks = useMarks(group);
  const [tall, wide] = value?.shape.slice(-2) ?? [];
  return html`<article class="head-card">
    <a href=${to(`${group}.h${head}`)} aria-label=${`head ${head}${label?.label ? `: ${label.label}` : ""}`}>
      <span class="head-name">head ${head}</span>
        ${value ? html`<${Thumb} values=${value.values.subarray(head * tall * wide, (head + 1) * tall * wide)} rows=${tall}
          cols=${wide} marks=${heavy ? null : marks} wide=${WIDE}
          high=${Math.max(44, Math.min(WIDE, (WIDE * rows) / cols))} />` : html`<${Waiting} error=${error} />`}
      <span class="head-label">${label?.label || " "}</span></a></article>`;
}
