// What the views share: the logit that is asked about, and the attention or head that is looked at.
import { useState } from "preact/hooks";
import { html, label, useAnswer, word } from "page/ui.js";
import { owner, parse } from "page/address.js";
import { listing, pinned, place, source, step } from "page/state.js";

/** The answer to a question, with the note that goes with it. */
export const useAsked = (question, asked = {}) =>
  useAnswer(() => (asked ? source.value.ask(question, asked) : null), [source.value, question, JSON.stringify(asked)]);

export const Head = ({ title, children }) => html`<header class="level-head"><h2>${title}</h2>${children}</header>`;
export const Note = ({ found }) =>
  found?.note && html`<p class="note"><strong>How to read it.</strong> ${found.note.replaceAll("`", "")}</p>`;

/** The logit of the step that is marked, or of a class; another can be chosen. */
export function useLogit() {
  const all = listing.value;
  const [typed, setTyped] = useState(null);
  const { value: top } = useAsked("top");
  const of = all.step("head.logits");
  const writes = !!all.run.choices;
  const row =
    of?.axes.length === 2 ? Math.min(writes ? all.position(step.value) : of.shape[0] - 1, of.shape[0] - 1) : null;
  const best = top?.rows[row ?? 0] ?? [];
  const own = writes ? all.run.ids[step.value] : best[0]?.id;
  const usual = own === undefined ? null : row === null ? `head.logits[${own}]` : `head.logits[${row},${own}]`;
  const address = typed && typed.row === row && typed.run === all ? typed.address : usual;
  const choose = (id) =>
    setTyped({ row, run: all, address: row === null ? `head.logits[${id}]` : `head.logits[${row},${id}]` });
  const chosen = address ? parse(address).cells.at(-1) : null;
  const words = new Map(best.map((each) => [each.id, each.word]));
  if (writes) words.set(all.run.ids[step.value], all.run.tokens[step.value]);
  const control =
    of &&
    html`<div class="controls">${
      row !== null &&
      (writes
        ? html`<label>step <select value=${step.value} onChange=${(event) => (step.value = Number(event.target.value))}>
          ${all.run.tokens.map((each, n) => html`<option value=${n}>${n + 1} ${word(each)}</option>`)}</select></label>`
        : html`<span class="dim">at position ${label(row, all.words(of, "t"))}</span>`)
    }
    <label>${row === null ? "class" : "word"} <select value=${chosen ?? ""} onChange=${(event) => choose(Number(event.target.value))}>
      ${[...words].map(([id, text]) => html`<option value=${id}>${word(text)}</option>`)}</select></label></div>`;
  return { address, control, has: !!of };
}

/** Which attention is looked at: that of the place one comes from, or the last. */
export function useAttention(wanted = () => true) {
  const all = listing.value;
  const groups = [...all.groups.keys()].filter((group) => all.isAttention(group) && wanted(group));
  const pin = parse(pinned.value || "");
  const from = pin?.head ? { group: owner(pin.name), head: pin.head } : place.value;
  const here = groups.includes(from.group) ? from.group : groups.at(-1);
  const [chosen, set] = useState(here);
  const [head, setHead] = useState(from.head?.[0] === "h" ? from.head[1] : 0);
  const group = groups.includes(chosen) ? chosen : here;
  const count = group ? all.heads(group).queries : 0;
  const number = Math.min(head, Math.max(0, count - 1));
  const control = html`<label>attention <select value=${group} onChange=${(event) => set(event.target.value)}>
    ${groups.map((each) => html`<option>${each}</option>`)}</select></label>
    <label>head <select value=${number} onChange=${(event) => setHead(Number(event.target.value))}>
      ${[...Array(count).keys()].map((n) => html`<option value=${n}>${n}</option>`)}</select></label>`;
  return { group, head: number, control };
}
