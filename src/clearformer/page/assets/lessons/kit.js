// What the panels are made of: tables of numbers that can be changed, sliders, curves, links into the model.
import { useEffect, useState } from "preact/hooks";
import { html, ink, number, rgb, scale, to } from "page/ui.js";

export { html, number };
const SHARE = scale("share", []);
const PAINT = ["a", "b", "c", "d", "e"];

/** What to see, in a sentence or two, and where it is in a model. */
export const Say = ({ children, address, where, more = {} }) =>
  html`<p class="ls-say">${children} ${address && html`<span class="ls-where">In a model: <a href=${to(address, more)}>${where ?? address}</a>.</span>`}</p>`;

/** A number that is typed; half a number, such as "−", waits until it is whole. */
function Typed({ value, label, onEdit }) {
  const [text, setText] = useState(String(value));
  useEffect(() => {
    if (Number(text) !== value) setText(String(value));
  }, [value]);
  const typed = (event) => {
    setText(event.target.value);
    const given = event.target.valueAsNumber;
    if (Number.isFinite(given)) onEdit(given);
  };
  return html`<input class="ls-cell" type="number" step="any" aria-label=${label} value=${text} onInput=${typed} onBlur=${() => setText(String(value))} />`;
}

/**
 * A matrix as a table. values: rows of numbers; rows, cols: names; onEdit(r, c, value): cells are typed;
 * shade: colours of shares; hidden(r, c): "future" or "padding" where a cell is −∞; picked(r, c): cells that stand out.
 */
export function Matrix({ title, values, rows, cols, axes = "", onEdit, shade = false, hidden = () => "", picked = () => false, note = "" }) {
  const whole = values.every((row) => row.every((x) => Number.isInteger(x) || x === -Infinity)); // then without decimals
  const cell = (value, r, c) => {
    const why = hidden(r, c);
    if (onEdit && !why) return html`<td><${Typed} value=${value} label=${`${title}, ${rows?.[r] ?? `row ${r + 1}`}, ${cols?.[c] ?? `column ${c + 1}`}`} onEdit=${(given) => onEdit(r, c, given)} /></td>`;
    const text = Number.isNaN(value) ? "none" : whole && Number.isInteger(value) ? String(value).replace("-", "−") : number(value);
    const colour = shade && value >= 0 && value <= 1 ? { background: rgb(SHARE, value), color: ink(SHARE, value) } : undefined;
    return html`<td class=${`${why ? `ls-${why}` : ""} ${picked(r, c) ? "ls-picked" : ""}`} style=${colour} data-value=${String(value)}>${text}</td>`;
  };
  return html`<div class="ls-wide" tabindex="0" role="group" aria-label=${title}><table class="ls-matrix">
    <caption>${title} <small>${axes}</small></caption>
    ${cols && html`<thead><tr>${rows && html`<td></td>`}${cols.map((name) => html`<th scope="col" dir="auto">${name}</th>`)}</tr></thead>`}
    <tbody>${values.map((row, r) => html`<tr>${rows && html`<th scope="row" dir="auto">${rows[r]}</th>`}${row.map((value, c) => cell(value, r, c))}</tr>`)}</tbody>
  </table>${note && html`<small>${note}</small>`}</div>`;
}

/** The matrix with one cell changed. */
export const edited = (values, r, c, value) => values.map((row, n) => (n === r ? row.map((x, m) => (m === c ? value : x)) : row));

export function Slider({ name, value, low, high, step = 1, show = String, onChange }) {
  return html`<label class="ls-slider"><span>${name}</span>
    <input type="range" min=${low} max=${high} step=${step} value=${value} aria-label=${name} aria-valuetext=${show(value)} onInput=${(event) => onChange(Number(event.target.value))} />
    <output>${show(value)}</output></label>`;
}

export const Toggle = ({ name, on, onChange }) =>
  html`<label class="ls-toggle"><input type="checkbox" checked=${on} onChange=${(event) => onChange(event.target.checked)} /> ${name}</label>`;

export const Choice = ({ name, value, options, onChange }) =>
  html`<label class="ls-choice"><span>${name}</span> <select value=${value} onChange=${(event) => onChange(event.target.value)}>
    ${options.map(([key, said]) => html`<option value=${key} selected=${key === value}>${said}</option>`)}</select></label>`;

export const Button = ({ children, onClick, ...more }) => html`<button type="button" class="ls-button" onClick=${onClick} ...${more}>${children}</button>`;

/**
 * Curves over the same places. lines: [{name, values}]; log: places that grow by factors; steep: so do the numbers;
 * mark: a place that stands out.
 * The numbers are in a table below, for those who do not see the picture.
 */
export function Plot({ title, places, lines, across, up, log = false, steep = false, mark = null, low = null }) {
  const [wide, high, edge, foot, top] = [640, 240, 72, 36, 14];
  const all = lines.flatMap((line) => line.values).filter(Number.isFinite);
  const least = low ?? (steep ? Math.min(...all) : Math.min(0, ...all));
  const most = Math.max(...all) === least ? least + 1 : Math.max(...all);
  const along = (x) => (log ? Math.log(x) : x);
  const [first, last] = [along(places[0]), along(places.at(-1))];
  const x = (place) => edge + ((along(place) - first) / (last - first || 1)) * (wide - edge - 14);
  const rise = (value) => (steep ? Math.log(value) : value);
  const y = (value) => top + ((rise(most) - rise(value)) / (rise(most) - rise(least))) * (high - top - foot);
  const ticks = [...new Set([least, ...(least < 0 && most > 0 ? [0] : []), most])];
  const some = [0, Math.floor((places.length - 1) / 2), places.length - 1];
  const said = (value) => Number(value.toPrecision(4)).toLocaleString("en-US").replace("-", "−");
  return html`<figure class="ls-plot">
    <figcaption>${title} <small>${up} ↑ ${across} →${steep ? ", both by factors" : ""}</small></figcaption>
    <svg viewBox="0 0 ${wide} ${high}" role="img" aria-label=${`${title}: ${lines.map((line) => line.name).join(", ")}`}>
      ${ticks.map((tick) => html`<g><path class="ls-rule" d="M${edge} ${y(tick)}H${wide - 14}" /><text x=${edge - 6} y=${y(tick) + 4} text-anchor="end">${said(tick)}</text></g>`)}
      ${some.map((n, k) => html`<text x=${x(places[n])} y=${high - 12} text-anchor=${["start", "middle", "end"][k]}>${said(places[n])}</text>`)}
      ${mark !== null && html`<path class="ls-mark" d="M${x(mark)} ${top}V${high - foot}" />`}
      ${lines.map((line, n) => html`<polyline class="ls-line ls-${PAINT[n % 5]}" points=${places.map((place, k) => `${x(place).toFixed(1)},${y(line.values[k]).toFixed(1)}`).join(" ")} />`)}
    </svg>
    <ul class="ls-key">${lines.map((line, n) => html`<li><svg viewBox="0 0 28 8" aria-hidden="true"><path class="ls-line ls-${PAINT[n % 5]}" d="M0 4H28" /></svg>${line.name}</li>`)}</ul>
    <details><summary>the numbers</summary><${Rows} heads=${[across, ...lines.map((line) => line.name)]} rows=${places.map((place, n) => [said(place), ...lines.map((line) => number(line.values[n]))])} label=${title} /></details>
  </figure>`;
}

/** A table of texts; the first column names its rows. */
export const Rows = ({ heads, rows, label, title = "" }) =>
  html`<div class="ls-wide" tabindex="0" role="group" aria-label=${label}><table class="ls-matrix ls-rows">${title && html`<caption>${title}</caption>`}
    <thead><tr>${heads.map((head) => (head === "" ? html`<td></td>` : html`<th scope="col">${head}</th>`))}</tr></thead>
    <tbody>${rows.map((row) => html`<tr>${row.map((cell, n) => (n ? html`<td class="ls-text">${cell}</td>` : html`<th scope="row" dir="auto">${cell}</th>`))}</tr>`)}</tbody></table></div>`;
