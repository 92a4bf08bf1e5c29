// An example of the notes as it comes from Python: every kind of section.
import { useRef } from "preact/hooks";
import { html, Plot } from "page/lessons/kit.js";
import { State, lesson, useAsked } from "page/lessons/ask.js";
import { HeatMap, ink, rgb, scale } from "page/ui.js";

const SHARE = scale("share", []);
const arrows = (section) => [section.row_axis && `${section.row_axis} ↓`, section.column_axis && `${section.column_axis} →`].filter(Boolean).join(" ");
const written = (value, decimals) => (value === null ? "−∞" : value.toFixed(decimals).replace(/^-(0\.?0*)$/, "$1").replace("-", "−"));
const Wide = ({ label, children }) => html`<div class="ls-wide" tabindex="0" role="group" aria-label=${label || "table"}><table class="ls-matrix">${children}</table></div>`;

const KINDS = {
  heading: ({ text }) => html`<h3>${text}</h3>`,
  prose: ({ text }) => html`<p dir="auto">${text}</p>`,
  ours: ({ text }) => html`<p class="ls-ours">${text}</p>`,
  equation: ({ text }) => html`<p class="ls-equation" tabindex="0" role="group" aria-label="equation">${text}</p>`,
  check: ({ claim, holds, seen }) => html`<p class="ls-check"><b class=${holds ? "ls-yes" : "ls-no"}>${holds ? "✓" : "✗"}</b> ${claim} <small>(${seen})</small></p>`,
  slip: Slip,
  question: () => null, // asked by the quiz
  beside: ({ parts }) => html`<div class="ls-beside">${parts.map((part) => html`<${Section} ...${part} />`)}</div>`,
  table: ({ title, columns, rows }) => html`<${Wide} label=${title}>${title && html`<caption>${title}</caption>`}<thead><tr>${columns.map((name) => (name ? html`<th scope="col">${name}</th>` : html`<td></td>`))}</tr></thead>
    <tbody>${rows.map((row) => html`<tr>${row.map((cell) => html`<td class="ls-text" dir="auto">${cell}</td>`)}</tr>`)}</tbody></${Wide}>`,
  matrix: Numbers,
  seen: (section) => html`<${Wide} label=${section.title}><caption>${section.title} <small>${arrows(section)}</small></caption><tbody class="ls-dots">${section.cells.map((row) => html`<tr>${row.map((cell) => html`<td class=${cell ? "ls-sees" : ""}><span class="unseen">${cell ? "sees" : "no"}</span></td>`)}</tr>`)}</tbody></${Wide}>`,
  picture: ({ title, values, row_axis, column_axis }) => html`<${HeatMap} title=${title} values=${values.flat()} rows=${values.length} cols=${values[0].length} kind="signed" rowName=${row_axis} colName=${column_axis} />`,
  curves: ({ title, places, lines, across, up, doubling }) => html`<${Plot} title=${title} places=${places} lines=${lines.map(([name, values]) => ({ name, values }))} across=${across} up=${up} log=${doubling} />`,
};

const Section = (section) => html`<${KINDS[section.kind] ?? (() => null)} ...${section} />`;

export function Slip({ notes_say, right, why, where }) {
  return html`<aside class="ls-slip" aria-label="slip of the notes" tabindex="-1"><b>slip · ${where}</b><p>The notes print <s>${notes_say}</s>; it is <strong>${right}</strong>, because ${why}.</p></aside>`;
}

function Numbers(section) {
  const { title, values, rows, columns, highlight, shade, decimals } = section;
  const marked = new Set(highlight.map(([r, c]) => `${r},${c}`));
  const cell = (value, r, c) => {
    const own = shade && value !== null && value >= 0 && value <= 1;
    const star = marked.has(`${r},${c}`);
    return html`<td class=${`${value === null ? "ls-future" : ""} ${star ? "ls-picked" : ""}`} data-value=${String(value)} style=${own ? { background: rgb(SHARE, value), color: ink(SHARE, value) } : undefined}>${star ? "* " : ""}${written(value, decimals)}</td>`;
  };
  return html`<${Wide} label=${title}><caption>${title} <small>${arrows(section)}</small></caption>
    ${columns.length > 0 && html`<thead><tr>${rows.length > 0 && html`<td></td>`}${columns.map((name) => html`<th scope="col" dir="auto">${name}</th>`)}</tr></thead>`}
    <tbody>${values.map((row, r) => html`<tr>${rows.length > 0 && html`<th scope="row" dir="auto">${rows[r]}</th>`}${row.map((value, c) => cell(value, r, c))}</tr>`)}</tbody></${Wide}>`;
}

/** The whole example. Below a panel it is folded away, but not where the notes slip: that stands at its place in it. */
export function Example({ source, name, below = false }) {
  const found = useAsked(() => lesson(source, name), [source?.live, name]);
  const box = useRef(null);
  const sections = found.value?.sections ?? [];
  const slips = sections.flatMap((each) => (each.kind === "beside" ? each.parts : [each])).filter(({ kind }) => kind === "slip");
  const show = (n) => {
    const slip = box.current.querySelectorAll(".ls-slip")[n];
    slip.closest("details")?.setAttribute("open", "");
    slip.scrollIntoView({ block: "center" });
    slip.focus();
  };
  const example = sections.map((each) => html`<${Section} ...${each} />`);
  return html`<${State} of=${found} what="computing the example" />
    ${slips.length > 0 && html`<p class="ls-slips">${slips.length === 1 ? "The notes slip once here" : `The notes slip ${slips.length} times here`}: ${slips.map((slip, n) => html`<button type="button" class="ls-button" onClick=${() => show(n)}>${slip.where}</button>`)}</p>`}
    ${found.value && html`<div class="ls-notes" ref=${box}>${below ? html`<details class="ls-example" open=${slips.length > 0}><summary><h3>The notes' example, step by step</h3></summary>${example}</details>`
      : html`<div class="ls-example">${example}</div>`}</div>`}`;
}
