// What if a head were gone: every head set to zero, one at a time, and what becomes of the logit.
import { html, Bars, HeatMap, number, percent, signed, to, Waiting, word } from "page/ui.js";
import { go } from "page/route.js";
import { Head, Note, useAsked, useLogit } from "page/views/ask.js";
import { change } from "page/change.js";
import { source } from "page/state.js";

export function AblationsView() {
  const logit = useLogit();
  const { value: found, error } = useAsked("ablations", logit.address ? { address: logit.address } : null);
  const best = found
    ? [...found.heads].sort((a, b) => Math.abs(b.logit_change) - Math.abs(a.logit_change)).slice(0, 14)
    : [];
  return html`<section class="level"><${Head} title="What if a head were gone?">
    <p>The run again without each head, all in one batch.</p>${logit.control}</${Head}>
    ${
      !logit.has
        ? html`<p class="problem">This model has no logits.</p>`
        : !found
          ? html`<${Waiting} error=${error} what="the runs without each head" />`
          : html`<${Note} found=${found} />
    <p class="result">${found.word && html`“<bdi>${word(found.word)}
      </bdi>” `}${number(found.logit)} <span class="dim">probability ${percent(found.probability)}</span></p>
    <${Grid} heads=${found.heads} />
    <article class="panel wide-names"><h3>most changed</h3><${Bars} plus label="change of the logit" items=${best.map(
      (head) => ({
        name: html`<code>${head.address}</code>`,
        value: head.logit_change,
        href: to(head.address),
        title: `probability ${signed(head.probability_change)}`,
        note: source.value.live
          ? html`<button type="button" class="quiet" onClick=${() => change(`${head.address}.mixed`, 0)}>drop it</button>`
          : null,
      }),
    )} /></article>`
    }</section>`;
}

/** Attentions down, heads across. */
function Grid({ heads }) {
  const rows = [...new Set(heads.map((head) => head.address.slice(0, head.address.lastIndexOf("."))))];
  const cols = Math.max(...heads.map((head) => Number(head.address.slice(head.address.lastIndexOf(".h") + 2)))) + 1;
  const values = new Float32Array(rows.length * cols);
  for (const head of heads)
    values[
      rows.indexOf(head.address.slice(0, head.address.lastIndexOf("."))) * cols +
        Number(head.address.slice(head.address.lastIndexOf(".h") + 2))
    ] = head.logit_change;
  return html`<article class="panel">
    <${HeatMap} values=${values} rows=${rows.length} cols=${cols} rowWords=${rows} named rowName="attention"
      colName="head" title="change of the logit without the head" tall=${520}
      onOpen=${(r, c) => go({ a: `${rows[r]}.h${c}`, v: null, p: null })} />
    </article>`;
}
