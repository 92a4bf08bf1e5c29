// Where each head looks: shares of attention, with the first token, on which idle heads rest, discounted.
import { useState } from "preact/hooks";
import { html, number, percent, to, Waiting } from "page/ui.js";
import { Head, Note, useAsked } from "page/views/ask.js";

const COLUMNS = [
  ["first", "first token"],
  ["previous", "token before"],
  ["itself", "itself"],
  ["induction", "what followed"],
  ["evenness", "evenness"],
];

export function HeadsView() {
  const { value: found, error } = useAsked("heads");
  const [by, setBy] = useState(null);
  const heads = found ? [...found.heads] : [];
  if (by) heads.sort((a, b) => (b[by] ?? -1) - (a[by] ?? -1));
  const share = (value) =>
    value === null || value === undefined
      ? html`<span class="dim">–</span>`
      : html`<span class="share-cell" data-value=${String(value)}>
        <span class="share-bar" style=${{ width: `${2.2 * value}rem` }} aria-hidden="true"></span>${percent(value)}
        </span>`;
  return html`<section class="level"><${Head} title="Where does each head look?">
    <p>Sort by a column to find the heads that do one thing.</p></${Head}>
    ${
      !found
        ? html`<${Waiting} error=${error} what="the heads" />`
        : html`<${Note} found=${found} />
    <div class="table-box" tabindex="0" role="region" aria-label="heads"><table class="heads-table"><thead><tr>
      <th scope="col">head</th><th scope="col">label</th>
      ${COLUMNS.map(([key, name]) => html`<th scope="col" aria-sort=${by === key ? "descending" : undefined}>
      <button type="button" class="quiet" onClick=${() => setBy(by === key ? null : key)}>
      ${name}${by === key ? " ↓" : ""}</button></th>`)}<th scope="col">entropy, bits</th></tr></thead>
      <tbody>${heads.map((head) => html`<tr key=${head.address}><th scope="row"><a href=${to(head.address)}><code>
        ${head.address}</code></a></th><td>${head.label && html`<span class="tag">${head.label}</span>`}</td>
        ${COLUMNS.map(([key]) => html`<td>${share(head[key])}</td>`)}<td>${number(head.entropy)}</td></tr>`)}</tbody>
        </table></div>`
    }</section>`;
}
