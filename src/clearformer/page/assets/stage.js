// The centre: a trail of where one is, tabs of views, and the level or view itself.
import { useEffect, useRef } from "preact/hooks";
import { html, to, Waiting } from "page/ui.js";
import { link, route } from "page/route.js";
import { write } from "page/address.js";
import { address, listing, lost, model, place, source, view } from "page/state.js";
import { ModelLevel } from "page/levels/model.js";
import { LayerLevel, PartLevel } from "page/levels/layer.js";
import { AttentionLevel } from "page/levels/attention.js";
import { HeadLevel } from "page/levels/head.js";
import { RowLevel } from "page/levels/row.js";
import { CellLevel } from "page/levels/cell.js";
import { Tensor, useTensor } from "page/tensor.js";
import { explained, titled } from "page/steps.js";
import { VIEWS } from "page/views/index.js";

const LEVELS = {
  model: ModelLevel,
  layer: LayerLevel,
  part: PartLevel,
  attention: AttentionLevel,
  head: HeadLevel,
  row: RowLevel,
  cell: CellLevel,
  tensor: TensorLevel,
};

function TensorLevel() {
  const { name, head, cells, parameter } = place.value;
  const own = write({ name, head, cells });
  return html`<section class="level"><header class="level-head"><h2>${titled(own)}</h2><p><code>${own}</code></p><p>
    ${explained(name).sentence}</p></header>
    ${parameter && cells.length ? html`<${OfParameter} own=${own} name=${name} cells=${cells} />` : html`<${Tensor}
      key=${own} name=${name} head=${head} cells=${cells} title="" tall=${480} />`}
      </section>`;
}

/** Cells of a parameter, whose shape the listing does not tell: one number, or what is left of it. */
function OfParameter({ own, name, cells }) {
  const { value, error } = useTensor(own);
  if (!value) return html`<${Waiting} error=${error} what=${own} />`;
  return value.shape.length
    ? html`<${Tensor} key=${own} name=${name} cells=${cells} title="" />`
    : html`<${CellLevel} />`;
}

export function Stage() {
  const all = listing.value;
  const box = useRef(null);
  const at = address.value;
  const seen = view.value;
  useEffect(() => {
    box.current?.scrollTo?.({ top: 0 });
    if (seen === "inside") return first(box.current);
  }, [at, seen]);
  if (!all)
    return html`<main class="stage" id="stage" tabindex="-1" ref=${box}><div class="empty">
      <h2>See through a transformer</h2>
      ${
        model.value?.takes.includes("image")
          ? html`<p>Give ${model.value.name} a picture, PNG or JPEG, above, and follow any number down to one multiplication.</p>
      <p class="dim">A link holds no picture: who opens one gives the picture again. To hand on what you see, export it as one HTML file.</p>`
          : html`<p>Choose a model, type a text, and follow any number from the whole model down to one multiplication.</p>`
      }</div></main>`;
  const View = VIEWS.find((each) => each.name === seen)?.View ?? LEVELS[place.value.level];
  return html`<main class="stage" id="stage" tabindex="-1" ref=${box} aria-label="stage">
    <nav class="tabs" aria-label="views">
      <a href=${link({ v: null })} aria-current=${seen === "inside" ? "page" : undefined}>inside</a>
      ${VIEWS.map(({ name, title }) => html`<a href=${link({ v: name })} aria-current=${seen === name ? "page" : undefined}>
      ${title}</a>`)}</nav>
    ${seen === "inside" && at && html`<nav class="trail" aria-label="where you are"><ol>
      ${all.trail(at).map((each) => html`<li>
      <a href=${to(each)} aria-current=${each === at ? "location" : undefined} dir="auto">${titled(each)}</a></li>`)}
      </ol></nav>`}
    ${lost.value && html`<p class="problem" role="status">There is no <code>${lost.value.slice(0, 120)}
      </code> in this run. ${at ? html`The nearest place is shown: <code>${at}</code>.` : "The whole model is shown."}
      </p>`}
    ${route.value.model && model.value && route.value.model !== model.value.name && html`<p class="problem" role="status">
      There is no model <code>${route.value.model.slice(0, 120)}</code> here. <code>${model.value.name}</code> is shown.</p>`}
    ${!source.value && html`<p class="problem">nothing is loaded</p>`}
    <${View} key=${`${seen} ${seen === "inside" ? place.value.level : ""}`} /></main>`;
}

/** After going deeper or back the keyboard is where one can go on, unless one has gone elsewhere in the meantime. */
function first(box) {
  if (!box || !document.documentElement.dataset.keys) return;
  const from = document.activeElement;
  const watch = new MutationObserver(look);
  const stop = () => watch.disconnect();
  function look() {
    const now = document.activeElement;
    if (now !== from && now !== document.body) return stop();
    const level = box.querySelector(".level");
    if (!level || level.querySelector(".waiting")) return;
    const main =
      level.querySelector(".pipeline [data-step=weights] .cell-focus") ??
      level.querySelector(
        ".row-grid .cell-focus, .equation a, .head-grid a, .blocks .thumb-link, .ribbons a, .cell-focus, .branches a, .given",
      );
    if (!main) return;
    stop();
    main.focus({ preventScroll: false });
  }
  watch.observe(box, { childList: true, subtree: true });
  look();
  return stop;
}
