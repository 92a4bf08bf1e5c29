// Expressions, as `explain` tells them, in MathML with the real numbers. Each number that has an address is a link.
import { useLayoutEffect, useRef } from "preact/hooks";
import { html } from "page/html.js";
import { number } from "page/format.js";
import { to } from "page/route.js";

const FEW = matchMedia("(max-width: 560px)").matches ? 1 : 3; // terms that are written out

/** A number that can be followed. MathML has no links of its own: an HTML one stands inside its text. */
function Followed({ address, value }) {
  const box = useRef(null);
  const href = to(address);
  useLayoutEffect(() => {
    const anchor = document.createElement("a");
    anchor.href = href;
    anchor.title = address;
    anchor.dataset.address = address;
    anchor.dataset.value = String(value);
    anchor.textContent = number(value);
    box.current.replaceChildren(anchor);
  }, [href, value]);
  return html`<mtext ref=${box}></mtext>`;
}

const Plain = ({ value }) => html`<mn>${number(value)}</mn>`;
const op = (sign) => html`<mo>${sign}</mo>`;
const paren = (inside) => html`<mrow><mo>(</mo>${inside}<mo>)</mo></mrow>`;
const joined = (list, sign) => list.flatMap((each, n) => (n ? [op(sign), each] : [each]));
/** A negative number in a product or sum stands in parentheses. */
const guarded = (tree) =>
  tree.value < 0 && (tree.kind === "number" || tree.kind === "constant") ? paren(inside(tree)) : inside(tree);

const FUNCTIONS = { gelu_tanh: "gelu" };
const BINARY = { "+": "+", "−": "−", "·": "⋅" };

/** The largest of some terms in the order they stand, and how many are left out. */
function largest(list, size, keep = -1) {
  const order = list.map((_, n) => n).sort((a, b) => (b === keep) - (a === keep) || size(list[b]) - size(list[a]));
  const chosen = new Set(order.slice(0, list.length <= FEW + 1 ? FEW + 1 : FEW));
  return [list.map((each, n) => [each, n]).filter(([, n]) => chosen.has(n)), list.length - chosen.size];
}

function inside(tree) {
  switch (tree.kind) {
    case "number":
      return html`<${Followed} address=${tree.address} value=${tree.value} />`;
    case "constant":
      return html`<${Plain} value=${tree.value} />`;
    case "masked":
      return html`<mrow><msup><mi>e</mi><mrow><mo>−</mo><mi>∞</mi></mrow></msup></mrow>`;
    case "products":
      return products(tree);
    case "softmax":
      return softmax(tree);
    case "norm":
      return norm(tree);
    default:
      return apply(tree);
  }
}

function apply({ sign, parts }) {
  if (sign === "/") return html`<mfrac><mrow>${inside(parts[0])}</mrow><mrow>${inside(parts[1])}</mrow></mfrac>`;
  if (sign === "^") return html`<msup><mrow>${guarded(parts[0])}</mrow><mrow>${inside(parts[1])}</mrow></msup>`;
  if (sign === "abs") return html`<mrow><mo>|</mo>${inside(parts[0])}<mo>|</mo></mrow>`;
  if (BINARY[sign] && parts.length === 2) {
    const wrap = (part, n) =>
      sign === "·" && part.kind === "apply" && "+−".includes(part.sign)
        ? paren(inside(part))
        : part.kind === "products"
          ? paren(inside(part))
          : n
            ? guarded(part)
            : inside(part);
    return html`<mrow>${joined(parts.map(wrap), BINARY[sign])}</mrow>`;
  }
  if (sign === "−") return html`<mrow><mo>−</mo>${guarded(parts[0])}</mrow>`;
  return html`<mrow><mi>${FUNCTIONS[sign] ?? sign}</mi>${paren(joined(parts.map(inside), ","))}</mrow>`;
}

function products({ pairs, bias }) {
  const [terms, left] = largest(pairs, ([a, b]) => Math.abs(a.value * b.value));
  const written = terms.map(([[a, b]]) => html`<mrow>${guarded(a)}<mo>⋅</mo>${guarded(b)}</mrow>`);
  if (left) written.push(html`<mrow><mo>⋯</mo><mtext>${` ${left} more`}</mtext></mrow>`);
  if (bias) written.push(guarded(bias));
  return html`<mrow>${joined(written, "+")}</mrow>`;
}

const power = (tree) =>
  tree.kind === "masked" ? inside(tree) : html`<msup><mi>e</mi><mrow>${inside(tree)}</mrow></msup>`;

function softmax({ row, place }) {
  const [terms, left] = largest(row, (each) => each.value ?? -Infinity, place);
  const below = terms.map(([each]) => power(each));
  if (left) below.push(html`<mrow><mo>⋯</mo><mtext>${` ${left} more`}</mtext></mrow>`);
  return html`<mfrac><mrow>${power(row[place])}</mrow><mrow>${joined(below, "+")}</mrow></mfrac>`;
}

function norm({ row, place, centred, eps, weight, bias }) {
  const x = row.map((each) => each.value);
  const mean = centred ? x.reduce((a, b) => a + b, 0) / x.length : 0;
  const square = x.reduce((a, b) => a + (b - mean) ** 2, 0) / x.length;
  const above = centred
    ? html`${inside(row[place])}<mo>−</mo>${mean < 0 ? paren(html`<mn>${number(mean)}</mn>`) : html`<mn>
      ${number(mean)}</mn>`}`
    : inside(row[place]);
  return html`<mrow><mfrac><mrow>${above}</mrow><msqrt><mn>${number(square)}</mn><mo>+</mo><mn>${String(eps)}</mn>
    </msqrt></mfrac>
    ${weight && html`<mo>⋅</mo>${guarded(weight)}`}${bias && html`<mo>+</mo>${guarded(bias)}`}</mrow>`;
}

const deep = (tree) => ["products", "softmax", "norm"].includes(tree.kind);
/** The parts of a formula that need a line of their own. */
const lines = (tree) => (deep(tree) ? [tree] : tree.kind === "apply" ? tree.parts.flatMap(lines) : []);
/** A formula with the results of those lines in their place. */
const folded = (tree) =>
  deep(tree)
    ? { kind: "constant", value: tree.value }
    : tree.kind === "apply"
      ? { ...tree, parts: tree.parts.map(folded) }
      : tree;
const Line = ({ tree, value, last }) =>
  html`<math display="block" role="group"><mrow>${inside(tree)}<mo>=</mo><mn class=${last ? "result" : ""}>
    ${number(value)}</mn></mrow></math>`;

/** The equation of a cell with its result; sums inside it have lines of their own. */
export function Equation({ tree, value }) {
  const first = deep(tree) ? [] : lines(tree);
  const box = useRef(null);
  useLayoutEffect(() => {
    const fit = () => {
      for (const line of box.current.children) {
        line.style.fontSize = "";
        const room = line.parentElement.clientWidth - 2 * parseFloat(getComputedStyle(box.current).paddingLeft);
        const share = room / line.scrollWidth;
        if (share < 1) line.style.fontSize = `${Math.max(0.72, share * 0.97)}em`; // beyond, it can be scrolled
      }
    };
    fit();
    const watch = new ResizeObserver(fit);
    watch.observe(box.current);
    return () => watch.disconnect();
  }, [tree]);
  return html`<div class="equation" ref=${box} tabindex="0" role="region" aria-label="the equation">
    ${first.map((part) => html`<${Line} tree=${part} value=${part.value} />`)}
    <${Line} tree=${first.length ? folded(tree) : tree} value=${value} last /></div>`;
}

/** Small formulas for texts: an array of [tag, ...children] where strings are text. */
export const Formula = ({ of, block = false }) => html`<math display=${block ? "block" : "inline"}>${build(of)}</math>`;
const build = (node) => (typeof node === "string" ? node : html`<${node[0]}>${node.slice(1).map(build)}</${node[0]}>`);

/** All numbers that went into a cell, the largest first: [{tree, times?, value, role}]. */
export function operands(tree) {
  if (!tree) return [];
  switch (tree.kind) {
    case "number":
    case "constant":
      return [{ tree, value: tree.value, role: "" }];
    case "products":
      return [
        ...tree.pairs.map(([a, b]) => ({ tree: a, times: b, value: a.value * b.value, role: "product" })),
        ...(tree.bias ? [{ tree: tree.bias, value: tree.bias.value, role: "bias" }] : []),
      ];
    case "softmax":
      return tree.row.map((each, n) => ({ tree: each, value: each.value, role: n === tree.place ? "this one" : "" }));
    case "norm":
      return [
        ...(tree.weight ? [{ tree: tree.weight, value: tree.weight.value, role: "weight" }] : []),
        ...(tree.bias ? [{ tree: tree.bias, value: tree.bias.value, role: "bias" }] : []),
        ...tree.row.map((each, n) => ({ tree: each, value: each.value, role: n === tree.place ? "this one" : "" })),
      ];
    case "apply":
      return tree.parts.flatMap(operands);
    default:
      return [];
  }
}
