// The map: the model drawn from the listing of its addresses, a column a stack; where one is is marked.
import { html } from "page/html.js";
import { to } from "page/route.js";
import { last } from "page/address.js";
import { branch } from "page/steps.js";
import { address, listing, place } from "page/state.js";

const WIDE = 106,
  GAP = 26,
  LINE = 21,
  DOT = 5.2;

/** Rows of a column: {group or block, y, high}. */
function column(stack, all) {
  let y = 28;
  const rows = [];
  const add = (row, high) => {
    rows.push({ ...row, y, high });
    y += high + 9;
  };
  for (const group of stack.before) add({ group, name: group === stack.name ? stack.name : last(group) }, 22);
  for (const [block, groups] of stack.blocks)
    add(
      { block, groups: groups.map((group) => ({ group, heads: all.isAttention(group) ? all.heads(group) : null })) },
      groups.length * LINE + 8,
    );
  for (const group of stack.after) add({ group, name: group === stack.name ? "final norm" : last(group) }, 22);
  return { rows, high: y };
}

export function ModelMap() {
  const all = listing.value;
  const here = address.value;
  const stacks = all.stacks.filter((stack) => stack.name !== "head");
  const heads = all.stacks.filter((stack) => stack.name === "head");
  const columns = stacks.map((stack) => column(stack, all));
  const high = Math.max(...columns.map((each) => each.high), 60) + (heads.length ? 40 : 4);
  const wide = stacks.length * WIDE + (stacks.length - 1) * GAP + 4;
  const on = (name) =>
    here === name ||
    here.startsWith(`${name}.`) ||
    here.startsWith(`${name}[`) ||
    place.value.group === name ||
    place.value.group?.startsWith(`${name}.`);
  const encoder = stacks.findIndex((stack) => stack.name === "encoder");
  const crossing = (group) => all.facts.attentions?.[group]?.crosses ?? last(group) === "cross";
  const x = (n) => 2 + n * (WIDE + GAP);
  return html`<nav class="map" aria-label="map of the model"><h2>
    <a href=${to("")} aria-current=${here === "" ? "location" : undefined}>map</a></h2><div class="map-box">
    <svg viewBox=${`0 0 ${wide} ${high}`} width=${wide} height=${high} role="group" aria-label="the parts of the model">
    <defs><marker id="arrow" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="6" markerHeight="6" orient="auto">
      <path d="M0 0 6 3 0 6z" class="arrow-head" /></marker></defs>
    ${stacks.map(
      (
        stack,
        n,
      ) => html`<g key=${stack.name}><text class="stack-name" x=${x(n) + WIDE / 2} y="14">
        ${stack.name}${stack.blocks.size ? ` × ${stack.blocks.size}` : ""}</text>
      <line class="stream" x1=${x(n) + WIDE / 2} x2=${x(n) + WIDE / 2} y1="22" y2=${columns[n].high - 8} />
      ${columns[n].rows.map((row) => (row.block ? html`<${Block} key=${row.block} row=${row} x=${x(n)} on=${on}
        here=${here} />` : html`<a href=${to(row.group)} key=${row.group}
        class=${place.value.group === row.group ? "here" : ""}
        aria-current=${place.value.group === row.group ? "location" : undefined}>
        <rect class="part" x=${x(n) + 16} y=${row.y} width=${WIDE - 32} height=${row.high} rx="11" />
        <text class="part-name" x=${x(n) + WIDE / 2} y=${row.y + 15}>${row.name}</text></a>`))}</g>`,
    )}
    ${
      encoder >= 0 &&
      stacks.map(
        (stack, n) =>
          n !== encoder &&
          columns[n].rows.flatMap((row) =>
            (row.groups ?? []).map(({ group }, line) => {
              if (!crossing(group)) return null;
              const end = columns[encoder].high - 20,
                y = row.y + 4 + (line + 0.5) * LINE;
              const from = x(encoder) + WIDE - 16;
              return html`<path class=${on(group) ? "crossing here" : "crossing"}
                d=${`M${from} ${end} H${x(n) - GAP / 2} V${y} H${x(n) + 1}`} marker-end="url(#arrow)" />`;
            }),
          ),
      )
    }
    ${heads.map((stack) => {
      const n = stacks.length - 1;
      const y = columns[n].high + 2;
      return html`<a href=${to(stack.before[0])} class=${on("head") ? "here" : ""}>
        <line class="stream" x1=${x(n) + WIDE / 2} x2=${x(n) + WIDE / 2} y1=${columns[n].high - 8} y2=${y} />
        <rect class="part" x=${x(n) + 10} y=${y} width=${WIDE - 20} height="24" rx="12" />
        <text class="part-name" x=${x(n) + WIDE / 2} y=${y + 16}>head</text></a>`;
    })}
  </svg></div></nav>`;
}

function Block({ row, x, on, here }) {
  const name = row.block.split(".").at(-1);
  return html`<g class=${on(row.block) ? "block here" : "block"}>
    <a href=${to(row.block)} aria-label=${`block ${row.block}`} aria-current=${here === row.block ? "location" : undefined}>
    <rect class="block-box" x=${x} y=${row.y} width=${WIDE} height=${row.high} rx="7" />
    <text class="block-number" x=${x + 8} y=${row.y + row.high / 2 + 4}>${name}</text></a>
    ${row.groups.map(
      (
        { group, heads },
        n,
      ) => html`<a href=${to(group)} key=${group} class=${on(group) ? "here" : ""}
        aria-label=${`${heads ? last(group) : branch(last(group))} ${group}`}>
        <rect class=${`branch-box ${last(group)}`} x=${x + 22} y=${row.y + 4 + n * LINE} width=${WIDE - 28} height=${LINE - 3} rx="4" />
      <text class="branch-name" x=${x + 27} y=${row.y + 4 + n * LINE + 13}>
        ${!heads ? branch(last(group)) : heads.queries <= 12 ? last(group) : `${last(group)} · ${heads.queries}`}
        </text></a>
      ${heads && heads.queries <= 12 && [...Array(heads.queries).keys()].map((h) => html`<a href=${to(`${group}.h${h}`)}
        tabindex="-1" aria-label=${`${group} head ${h}`}>
        <circle class=${here.startsWith(`${group}.h${h}.`) || here === `${group}.h${h}` ? "head-dot here" : "head-dot"}
          cx=${x + WIDE - 10 - (heads.queries - 1 - h) * Math.min(2 * DOT, 42 / heads.queries) - Math.floor((heads.queries - 1 - h) / (heads.queries / heads.keys)) * (heads.keys < heads.queries ? 1.5 : 0)}
          cy=${row.y + 4 + n * LINE + (LINE - 3) / 2} r=${Math.min(DOT / 1.6, 18 / heads.queries)} />
        </a>`)}`,
    )}</g>`;
}
