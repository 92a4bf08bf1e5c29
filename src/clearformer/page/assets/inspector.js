// The right side: one number, exactly; where it is, what its step does, and how to get it in Python.
import { html, Formula, number, to } from "page/ui.js";
import { exact, placed } from "page/format.js";
import { parse } from "page/address.js";
import { explained } from "page/steps.js";
import { operands } from "page/math.js";
import { useExplained } from "page/levels/cell.js";
import { python } from "page/python.js";
import { Copy } from "page/copy.js";
import { address, listing, pinned, place } from "page/state.js";

export function Inspector() {
  const all = listing.value;
  const cell = pinned.value;
  const shown = cell || address.value;
  return html`<aside class="inspector" aria-label="inspector"><h2>${cell ? "number" : "place"}</h2>
    ${all && (cell ? html`<${Number_} key=${cell} cell=${cell} all=${all} />` : html`<${Place} all=${all} at=${shown} />`)}
      </aside>`;
}

function About({ all, name }) {
  const step = all.step(name);
  const { sentence, formula } = explained(name);
  return html`${sentence && html`<p>${sentence}</p>`}${formula && html`<p class="formula">
    <${Formula} of=${formula} block /></p>`}
    ${
      step &&
      html`<dl><div><dt>shape</dt><dd>${step.names.map((each, n) => `${each} ${step.shape[n]}`).join(" × ")}</dd></div>
      ${step.changed && html`<div><dt>changed</dt><dd>yes, by you</dd></div>`}${step.later && html`<div><dt>kept</dt>
        <dd>not kept: computed again when asked for</dd></div>`}</dl>
      ${step.operands.length > 0 && html`<h3>computed from</h3><ul class="operands">
        ${step.operands.map((each) => html`<li><a href=${to(each)}><code>${each}</code></a></li>`)}</ul>`}`
    }`;
}

function Number_({ cell, all }) {
  const { value: found, error } = useExplained(cell);
  const { name } = parse(cell);
  const used = found ? operands(found.expression).slice(0, 6) : [];
  return html`<p class="pin-value" data-address=${cell} data-value=${found ? String(found.value) : ""}>
    ${found ? exact(found.value) : error ? error.message : "…"}</p>
    <p class="address"><code>${cell}</code></p>
    ${found && html`<ul class="place" dir="auto">${placed(found.place).map((each) => html`<li>${each}</li>`)}</ul>`}
    <p class="actions"><${Copy} text=${cell}>copy address</${Copy}>
      <${Copy} text=${() => python(cell)}>copy as Python</${Copy}>
      ${cell !== address.value && html`<a class="button" href=${to(cell)}>open</a>`}</p>
    <${About} all=${all} name=${name} />
    ${used.length > 0 && html`<h3>its numbers</h3><ul class="operands">
      ${used.filter((each) => each.tree.address).map((each) => html`<li><a href=${to(each.tree.address)}><code>
      ${each.tree.address}</code> ${number(each.tree.value)}</a></li>`)}</ul>`}`;
}

function Place({ all, at }) {
  const { level, name, group, block } = place.value;
  if (level === "model")
    return html`<p class="dim">Point at a number anywhere; open it, and it is pinned here with its exact value, its address and what it was computed from.</p>`;
  return html`<p class="address"><code>${at}</code></p><p class="actions"><${Copy} text=${at}>copy address</${Copy}>
    ${name && html`<${Copy} text=${() => python(at)}>copy as Python</${Copy}>`}</p>
    ${name ? html`<${About} all=${all} name=${name} />` : html`<p class="dim">
      ${level === "layer" ? `One block of ${block.split(".")[0]}: each branch reads the stream and adds to it.` : level === "attention" ? "Every head looks at all positions in its own way; their results stand side by side and go through one matrix." : level === "head" ? "Follow it from left to right: what is looked for, what is found, how much is taken." : `The steps of ${group}.`}
      </p>`}`;
}
