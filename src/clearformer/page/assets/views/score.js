// Why this score: q · k, split by where the query and the key came from. All cells sum to the score.
import { useState } from "preact/hooks";
import { html, Bars, HeatMap, number, to, Waiting } from "page/ui.js";
import { go } from "page/route.js";
import { last } from "page/address.js";
import { Head, Note, useAsked, useAttention } from "page/views/ask.js";
import { placed } from "page/format.js";
import { listing, pinned, place } from "page/state.js";
import { parse, owner } from "page/address.js";

/** The score of the number that is pinned, where it is one. */
function asked() {
  const at = parse(pinned.value || "");
  if (at?.head?.[0] === "h" && at.cells.length === 2 && ["weights", "scores"].includes(last(at.name)))
    return { group: owner(at.name), head: at.head[1], cells: at.cells };
  return null;
}

export function ScoreView() {
  const all = listing.value;
  const chosen = useAttention();
  const given = asked();
  const [by, setBy] = useState("branch");
  const { group, head } = chosen;
  const own = given && given.group === group && given.head === head ? given.cells : [place.value.cells?.[0] ?? 0, 0];
  const [cells, setCells] = useState(null);
  const step = all.step(`${group}.scores`);
  const [rows, cols] = step.shape.slice(-2);
  const [t, s] = (cells ?? own).map((each, n) => Math.min(each, [rows, cols][n] - 1));
  const address = `${group}.h${head}.scores[${t},${s}]`;
  const { value: found, error } = useAsked("score", { address, by });
  const pick = (n, most, name) =>
    html`<label>${name} <input type="number" min="0" max=${most - 1} value=${[t, s][n]} onInput=${(event) => {
      const next = [t, s];
      next[n] = Math.max(0, Math.min(most - 1, Number(event.target.value) || 0));
      setCells(next);
    }} /></label>`;
  return html`<section class="level"><${Head} title="Why this score?">
    <p>The query is a sum of what was added to its stream, and so is the key: their product splits into all pairs.</p>
    <div class="controls">${chosen.control}${pick(0, rows, "query")}${pick(1, cols, "key")}
      <span class="switch" role="group" aria-label="how fine">
      <button type="button" aria-pressed=${by === "branch"} onClick=${() => setBy("branch")}>by branch</button>
      <button type="button" aria-pressed=${by === "head"} onClick=${() => setBy("head")}>by head</button></span></div>
      </${Head}>
    ${
      !found
        ? html`<${Waiting} error=${error} what="the parts of the score" />`
        : html`<${Note} found=${found} />
    <p class="result"><a href=${to(found.address)} data-value=${String(found.value)}>${number(found.value)}
      </a> <span class="dim">
      ${placed(found.place).join(" · ")} · sum of all cells${found.biases.length ? " and biases" : ""}: <span data-sum=${String(found.total)}>
      ${number(found.total)}</span>${found.visible ? "" : " · masked: this query may not see this key"}</span></p>
    <article class="panel">
      <${HeatMap} values=${Float32Array.from(found.table.flat())} rows=${found.queries.length}
        cols=${found.keys.length} rowWords=${found.queries} colWords=${found.keys} rowName="of the query"
        colName="of the key" named title="parts of q · k" tall=${480}
        onOpen=${(r, c) => go({ a: found.queries[r].replace(/\.(query|key)$/, ""), v: null, p: null })} />
      </article>
    ${found.biases.length > 0 && html`<${Bars} plus label="biases" items=${found.biases.map((each) => ({ name: html`<code>
      ${each.address}</code>`, value: each.value, href: to(each.address) }))} />`}`
    }</section>`;
}
