// The whole model on one screen: what it read, what came out, and every head of every block as a small picture.
import { html, Thumb, Bars, number, word, to, useAnswer } from "page/ui.js";
import { useSeen } from "page/thumb.js";
import { branch } from "page/steps.js";
import { count, percent } from "page/format.js";
import { listing, place, source } from "page/state.js";
import { Tokens, Picture } from "page/tokens.js";

const ENDED = {
  end: "finished by itself",
  stop: "stopped at a word",
  limit: "stopped at its limit",
  forced: "given, not written",
};
const MANY = 1_500_000; // numbers of one attention that are loaded for small pictures only when asked for

export function ModelLevel() {
  const all = listing.value;
  const only = place.value.stack;
  const { facts, run } = all;
  const stacks = all.stacks.filter((stack) => !only || stack.name === only);
  return html`<section class="level model-level">
    <header class="level-head"><h2>${all.data.model ?? "The model"}</h2>
      <p class="facts">
        ${facts.kind ?? ""}${facts.parameters ? ` · ${count(facts.parameters)} parameters` : ""}${facts.precision ? ` · ${facts.precision}` : ""}
        </p></header>
    <${Did} run=${run} all=${all} />
    ${stacks.map((stack) => html`<${Stack} key=${stack.name} stack=${stack} all=${all} />`)}
    <p class="note">Every small square is one head: queries run down, keys across, bright is much attention. Open one, or a block, to go deeper.</p>
  </section>`;
}

function Did({ run, all }) {
  const words = all.data.words;
  return html`<div class="did">
    ${run.picture && html`<${Picture} picture=${run.picture} grid=${run.grid} />`}
    ${Object.entries(words).map(([side, list]) => html`<div class="side"><h3>
      ${side === "input" ? "read" : side === "source" ? "source" : "target, as the decoder reads it"}</h3>
      <${Tokens} words=${list} side=${side} segments=${side === "input" ? run.segments : null}
        written=${side === "input" && run.tokens && run.read ? run.read.length : null} />
      </div>`)}
    ${
      run.text !== undefined &&
      run.tokens &&
      run.choices &&
      html`<div class="side"><h3>${run.finish === "forced" ? "given" : "written"}</h3><p
        class=${run.text.length > 160 ? "result long" : "result"} dir="auto">${run.text || "(nothing)"}</p>
      <p class="facts">log-probability ${number(run.score)}${run.normalised !== run.score ? ` · normalised by length ${number(run.normalised)}` : ""} · ${ENDED[run.finish] ?? run.finish}
        </p></div>`
    }
    ${run.answer && html`<div class="side"><h3>${run.verb}</h3><${Answer} answer=${run.answer} /></div>`}
  </div>`;
}

/** What a model found, whatever form it has: named numbers as bars, the rest as lines. */
export function Answer({ answer }) {
  const parts = Object.entries(answer).map(([name, value]) => {
    if (Array.isArray(value) && value.length && typeof value[0] === "object" && !Array.isArray(value[0])) {
      const texts = Object.keys(value[0]).filter((key) => typeof value[0][key] === "string");
      const key = Object.keys(value[0]).find((each) => ["score", "probability", "confidence"].includes(each));
      if (key)
        return html`<${Bars} label=${name} most=${1} show=${percent}
          items=${value.slice(0, 8).map((each) => ({ name: texts.map((text) => word(each[text], 40)).join(" · "), value: each[key] }))} />`;
    }
    if (
      Array.isArray(value) &&
      value.length &&
      Array.isArray(value[0]) &&
      value[0].length === 2 &&
      typeof value[0][1] === "number"
    )
      return html`<${Bars} label=${name} most=${1} show=${percent}
        items=${value.slice(0, 8).map(([each, share]) => ({ name: word(each, 40), value: share }))} />`;
    if (Array.isArray(value) && Array.isArray(value[0]) && typeof value[0][0] === "object")
      return value.map((each) => html`<${Answer} answer=${{ [name]: each }} />`);
    if (Array.isArray(value) && value.length > 8 && typeof value[0] === "number")
      return html`<p>${name}: ${value.length} numbers, <a href=${to("head")}>as they were computed</a></p>`;
    if (
      value &&
      typeof value === "object" &&
      !Array.isArray(value) &&
      Object.values(value).every((each) => typeof each === "number")
    )
      return html`<${Bars} label=${name} most=${1} show=${percent}
        items=${Object.entries(value).map(([each, share]) => ({ name: word(each, 40), value: share }))} />`;
    if (value === null || value === "" || (Array.isArray(value) && !value.length)) return null;
    return html`<p dir="auto"><span class="dim">${name}
      </span> ${typeof value === "object" ? JSON.stringify(value).slice(0, 300) : typeof value === "number" ? number(value) : String(value).slice(0, 300)}
      </p>`;
  });
  return html`<div class="answer">${parts}</div>`;
}

function Stack({ stack, all }) {
  const parts = (groups) =>
    groups.map(
      (group) =>
        html`<a class="chip" href=${to(group)}>${group === stack.name && stack.blocks.size ? `${group}.final` : group}</a>`,
    );
  return html`<div class="stack"><h3>
    ${stack.name}${stack.blocks.size ? html` <span class="dim">× ${stack.blocks.size} blocks</span>` : ""}</h3>
    ${stack.before.length > 0 && html`<p class="chips">${parts(stack.before)}</p>`}
    <ol class="blocks">${[...stack.blocks].map(
      ([block, groups]) => html`<li key=${block}>
      <a class="block-name" href=${to(block)}><span class="dim">block</span> ${block.split(".").at(-1)}</a>
      ${groups.map((group) => (all.isAttention(group) ? html`<${HeadRow} key=${group} group=${group}
        all=${all} />` : html`<a class="branch" href=${to(group)}>
        ${branch(group.split(".").at(-1))}</a>`))}</li>`,
    )}</ol>
    ${stack.after.length > 0 && html`<p class="chips">${parts(stack.after)}</p>`}
  </div>`;
}

function HeadRow({ group, all }) {
  const [box, seen] = useSeen();
  const step = all.step(`${group}.weights`);
  const [heads, rows, cols] = step.shape;
  const light = heads * rows * cols <= MANY;
  const { value } = useAnswer(
    () => (seen && light ? source.value.tensor(`${group}.weights`) : null),
    [seen, light, source.value, group],
  );
  const name = branch(group.split(".").at(-1));
  return html`<div class="heads" ref=${box}><a class="branch" href=${to(group)}>${name}</a>
    <span class="thumbs">${[...Array(heads).keys()].map(
      (
        head,
      ) => html`<a key=${head} class="thumb-link" href=${to(`${group}.h${head}`)}
        aria-label=${`${group}, head ${head}`} title=${`${group}.h${head}`}>
      ${light ? html`<${Thumb} values=${value?.values.subarray(head * rows * cols, (head + 1) * rows * cols)}
        rows=${rows} cols=${cols} wide=${36} high=${36} />` : html`<span class="unloaded">h${head}
        </span>`}</a>`,
    )}</span></div>`;
}
