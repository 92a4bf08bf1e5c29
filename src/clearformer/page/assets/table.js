// Numbers as a table: for screen readers, for copying, for those who like digits. Pages of columns, never cut digits.
import { useState } from "preact/hooks";
import { html } from "page/html.js";
import { label, number } from "page/format.js";
import { to } from "page/route.js";

const ROWS = 40,
  COLUMNS = 12;

export function NumberTable({
  values,
  rows,
  cols,
  marks,
  rowName,
  colName,
  rowWords,
  colWords,
  rowStart = 0,
  colStart = 0,
  address,
}) {
  const [at, setAt] = useState([0, 0]);
  const down = [...Array(Math.min(ROWS, rows - at[0])).keys()].map((n) => n + at[0]);
  const across = [...Array(Math.min(COLUMNS, cols - at[1])).keys()].map((n) => n + at[1]);
  const step = (axis, by, name) =>
    html`<button type="button" class="quiet"
      disabled=${axis ? at[1] + by < 0 || at[1] + by >= cols : at[0] + by < 0 || at[0] + by >= rows}
      onClick=${() => setAt(axis ? [at[0], at[1] + by] : [at[0] + by, at[1]])}>
      ${name}</button>`;
  const cell = (r, c) => {
    const text = marks?.[r * cols + c] ? "−∞" : number(values[r * cols + c]);
    return address ? html`<a href=${to(address(r, c))}>${text}</a>` : text;
  };
  return html`<div class="table-box" tabindex="0" role="region" aria-label="the numbers as a table"><table class="numbers">
      <thead><tr><th scope="col">${rows > 1 ? `${rowName} ↓ ` : ""}${colName} →</th>
        ${across.map((c) => html`<th scope="col" dir="auto">${colWords ? label(c, colWords) : c + colStart}</th>`)}
        </tr></thead>
      <tbody>${down.map((r) => html`<tr><th scope="row" dir="auto">
        ${rowWords ? label(r, rowWords) : rows > 1 ? r + rowStart : ""}</th>
        ${across.map((c) => html`<td data-value=${marks?.[r * cols + c] ? "hidden" : String(values[r * cols + c])}>
        ${cell(r, c)}</td>`)}</tr>`)}</tbody>
    </table></div>
    ${
      (rows > ROWS || cols > COLUMNS) &&
      html`<p class="pager">
        ${rows > ROWS && html`${step(0, -ROWS, "rows ↑")}${step(0, ROWS, "rows ↓")}`}${cols > COLUMNS && html`${step(1, -COLUMNS, "← columns")}${step(1, COLUMNS, "columns →")}`}
      <span>rows ${at[0]}–${at[0] + down.length - 1} of ${rows}, columns ${at[1]}–${at[1] + across.length - 1} of ${cols}
        </span></p>`
    }`;
}

/** Any rows of texts and links: heads: names of columns; rows: lists of what htm takes. */
export const Table = ({ heads, rows, label: name }) =>
  html`<div class="table-box" tabindex="0" role="region" aria-label=${name}><table>
    <thead><tr>${heads.map((head) => html`<th scope="col">${head}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr>${row.map((cell) => html`<td>${cell}</td>`)}</tr>`)}</tbody></table></div>`;
