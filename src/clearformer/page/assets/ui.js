// The shared components, for the page and for lessons: `import {HeatMap, …} from "page/ui.js"`, or the `ui` that a
// lesson is given.
//
//   html`…`                           htm for preact
//   HeatMap {values, rows, cols, kind: "share"|"length"|"signed", rowWords, colWords, rowName, colName, title, marks,
//            square, tall, bars, onOpen(r, c), address(r, c), link, roles}     values: any array, row by row
//   Bars    {items: [{name, value, href?, note?, chosen?, onClick?}], most?, plus?, show?, label?}
//   Table   {heads, rows, label}      rows of texts or components
//   NumberTable                       a matrix with words, in pages
//   Equation {tree, value}            an expression as `explain` tells it;  Formula {of: ["mrow", …], block?}
//   Note    {children}                how to read a picture, and what it does not prove
//   Thumb   {values, rows, cols, kind, wide, marks}      a small heat map without focus, for links
//   number, signed, brief, percent, word, label            numbers and words as people read them
//   scale, rgb, ink                   colours of numbers
//   to(address)                       the link to a place in the model;  useAnswer(make, keys) waits for answers
//   FUTURE, ABSENT, PADDING           marks of cells that are hidden
import { html } from "page/html.js";

export { html };
export { HeatMap } from "page/heatmap.js";
export { Thumb } from "page/thumb.js";
export { Bars } from "page/bars.js";
export { NumberTable, Table } from "page/table.js";
export { Equation, Formula } from "page/math.js";
export { brief, count, exact, label, number, percent, signed, spoken, word } from "page/format.js";
export { ink, rgb, scale } from "page/colour.js";
export { ABSENT, FUTURE, PADDING, SEEN } from "page/paint.js";
export { link, to } from "page/route.js";
export { useAnswer, Waiting } from "page/load.js";

export const Note = ({ children }) => html`<p class="note">${children}</p>`;
