// One number: the equation that made it, with the real numbers, each of which can be followed.
import { useState } from "preact/hooks";
import { html, Bars, Equation, number, to, useAnswer, Waiting } from "page/ui.js";
import { operands } from "page/math.js";
import { explained } from "page/steps.js";
import { exact, placed } from "page/format.js";
import { parse } from "page/address.js";
import { address, source } from "page/state.js";

export const useExplained = (cell) =>
  useAnswer(() => (cell ? source.value.ask("explain", { address: cell }) : null), [source.value, cell]);

export function CellLevel() {
  const cell = address.value;
  const { value: found, error } = useExplained(cell);
  if (!found)
    return html`<section class="level"><header class="level-head"><h2><code>${cell}</code></h2></header>
      <${Waiting} error=${error} what="the equation" /></section>`;
  const tree = found.expression;
  return html`<section class="level"><header class="level-head">
    <h2 class="cell-number" data-address=${found.address} data-value=${String(found.value)}>${number(found.value)}
    </h2><p><code>${found.address}</code></p><p dir="auto">${placed(found.place).join(" · ")}</p></header>
    <p>${explained(parse(cell).name).sentence}</p>
    ${found.changed ? html`<p class="tag changed">set by a change</p>` : !tree ? html`<p class="given">Given: nothing computed it in this run. ${exact(found.value)}
      </p>` : html`<${Equation} tree=${tree} value=${found.value} /><${Operands} key=${cell} tree=${tree} />`}
    ${tree?.kind === "masked" && html`<p>This query may not see this key: its score counts as −∞, and e to the −∞ is exactly 0.</p>`}
    ${found.text && html`<details><summary>as the terminal writes it</summary><pre>${found.text}</pre></details>`}
      </section>`;
}

function Operands({ tree }) {
  const [all, setAll] = useState(false);
  const list = operands(tree);
  if (!list.length) return null;
  const products = list.filter((each) => each.role === "product");
  const order = products.length
    ? [...list].sort((a, b) => Math.abs(b.value) - Math.abs(a.value))
    : tree.kind === "softmax"
      ? [...list].sort((a, b) => b.value - a.value)
      : list;
  const shown = all ? order : order.slice(0, 12);
  const short = (address) => address.replace(/^.*\.(?=[^.]+$)/, "");
  const named = (each) => html`<code>${each.address ? short(each.address) : "constant"}</code> ${number(each.value)}`;
  const items = shown.map((each) => ({
    name: each.times ? html`${follow(each.tree)} <span class="dim">×</span> ${follow(each.times)}` : follow(each.tree),
    value: each.value,
    note: each.role && each.role !== "product" ? html`<span class="tag">${each.role}</span>` : null,
  }));
  return html`<article class="panel wide-names"><h3>
    ${products.length ? `${products.length} products${list.some((each) => each.role === "bias") ? " and a bias" : ""}, largest first` : "what went in"}
    </h3><${Bars} label="operands" items=${items} />
    ${list.length > 12 && html`<button type="button" class="quiet" onClick=${() => setAll(!all)}>
      ${all ? "fewer" : `all ${list.length}`}</button>`}</article>`;

  function follow(each) {
    return each.address
      ? html`<a href=${to(each.address)} data-address=${each.address} title=${each.address} data-value=${String(each.value)}>
        ${named(each)}</a>`
      : named(each);
  }
}
