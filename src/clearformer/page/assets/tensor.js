// Any tensor of the listing: a number, a vector as bars, a matrix as a heat map, more axes with a chooser.
import { useState } from "preact/hooks";
import { html, HeatMap, number, useAnswer, Waiting } from "page/ui.js";
import { write } from "page/address.js";
import { go } from "page/route.js";
import { listing, source } from "page/state.js";

export const useTensor = (address) => useAnswer(() => source.value.tensor(address), [source.value, address]);

/** The kind of scale that a step's numbers have. */
export const kindOf = (name) => (/(^|\.)weights$/.test(name) ? "share" : /carried$/.test(name) ? "length" : "signed");

/** Words along an axis; those of a vocabulary are asked for. */
export function useWords(step, axis) {
  const ask = step?.words?.[axis] === "outputs" || axis === "v" || (axis === "c" && step?.address === "head.logits");
  const { value } = useAnswer(() => (ask ? source.value.ask("outputs") : null), [source.value, ask]);
  if (ask) return value?.outputs?.length ? value.outputs : null;
  return listing.value.words(step, axis);
}

/**
 * A tensor of a step, or what is left of it behind a head and cells.
 * @param {{name: string, head?: [string, number], cells?: number[], title?: string}} given  more goes to the heat map
 */
export function Tensor({ name, head = null, cells = [], title, ...more }) {
  const address = write({ name, head, cells });
  const { value, error, old } = useTensor(address);
  const found = value ?? old;
  if (!found || (!value && found.shape?.length > 2)) return html`<${Waiting} error=${error} what=${address} />`;
  return html`<${Shown} ...${{ found, name, head, cells, title: title ?? address, ...more }} />`;
}

function Shown({ found, name, head, cells, title, ...more }) {
  const { shape, axes, values } = found;
  const [chosen, setChosen] = useState(shape.slice(0, -2).map(() => 0));
  const step = listing.value.step(name);
  const rowAxis = axes.at(-2),
    colAxis = axes.at(-1);
  const rowWords = useWords(step, rowAxis),
    colWords = useWords(step, colAxis);
  const fits = (words, size) => (words?.length === size ? words : null);
  const said = (axis, n) => found.names[n] ?? axis;
  if (!shape.length) return html`<p class="big-number" data-value=${String(values[0])}>${number(values[0])}</p>`;
  if (!values.length) return html`<p class="dim">empty</p>`;
  if (shape.length === 1) {
    const cell = (_, c) => write({ name, head, cells: [...cells, c] });
    return html`<${HeatMap} values=${values} rows=${1} cols=${shape[0]} bars tall=${110} kind=${kindOf(name)}
      title=${title} colName=${said(colAxis, 0)} colWords=${fits(colWords, shape[0])} address=${cell}
      onOpen=${(r, c) => go({ a: cell(r, c), v: null, p: null })} ...${more} />`;
  }
  const before = shape.slice(0, -2);
  const [rows, cols] = shape.slice(-2);
  const index = before.reduce((at, size, n) => at * size + Math.min(chosen[n], size - 1), 0);
  const part = values.subarray(index * rows * cols, (index + 1) * rows * cols);
  const headAxis = axes.findIndex((axis) => axis === "h" || axis === "g");
  const cell = (r, c) => {
    const own = headAxis >= 0 && headAxis < before.length ? [axes[headAxis], chosen[headAxis]] : head;
    return write({ name, head: own, cells: [...cells, ...chosen.filter((_, n) => n !== headAxis), r, c] });
  };
  return html`<div class="tensor">
    ${before.map(
      (size, n) =>
        html`<label class="chooser">
          ${said(axes[n], n)} <input type="number" min="0" max=${size - 1} value=${chosen[n]} onInput=${(
          event,
        ) => {
          const next = Math.max(0, Math.min(size - 1, Number(event.target.value) || 0));
          setChosen(chosen.map((each, m) => (m === n ? next : each)));
        }} /> <span class="dim">of ${size}</span></label>`,
    )}
    <${HeatMap} values=${part} rows=${rows} cols=${cols} kind=${kindOf(name)} title=${title}
      rowName=${said(rowAxis, axes.length - 2)} colName=${said(colAxis, axes.length - 1)}
      rowWords=${fits(rowWords, rows)} colWords=${fits(colWords, cols)} square=${["t", "s"].includes(colAxis) && ["t", "s", "r"].includes(rowAxis)} address=${cell} onOpen=${(r, c) => go({ a: cell(r, c), v: null, p: null })} ...${more} />
        </div>`;
}
