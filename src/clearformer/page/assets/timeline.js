// The bottom: how the text was written, step by step, and the beam that was searched.
import { useMemo, useRef, useState } from "preact/hooks";
import { html, number, percent, word } from "page/ui.js";
import { go } from "page/route.js";
import { listing, place, source, step, view } from "page/state.js";
import { BeamTree } from "page/beams.js";
import { Temperature } from "page/temperature.js";

export function Bottom() {
  const { run } = listing.value;
  const [tab, setTab] = useState("timeline");
  const at = `${view.value} ${place.value.level}`;
  const [asked, ask] = useState({});
  const open = asked.at === at ? asked.open : at === "inside model"; // deeper down the stage needs the room
  const setOpen = (next) => ask({ at, open: next });
  const shown = useRef(null); // the run whose steps were drawn: they stay, hidden, for the way back
  if (open) shown.current = run;
  const timeline = useMemo(() => html`<${Timeline} run=${run} />`, [run]);
  if (!run.choices?.length) return null;
  const beams = (run.options?.num_beams ?? 1) > 1 || run.best.length > 1;
  const tabs = [["timeline", "timeline"], ...(beams ? [["beam", "beam tree"]] : []), ["temperature", "temperature"]];
  return html`<section class=${!open ? "bottom closed" : tab === "beam" && beams ? "bottom tall" : "bottom"} aria-label="decoding">
    <header><h2>decoding</h2><span class="switch" role="group" aria-label="what is shown">${tabs.map(
    ([name, text]) =>
      html`<button type="button" aria-pressed=${open && tab === name} onClick=${() => {
        setTab(name);
        setOpen(true);
      }}>${text}</button>`,
  )}</span>
      <button type="button" class="quiet" aria-expanded=${open} onClick=${() => setOpen(!open)}>
        ${open ? "hide" : "show"}</button>
      ${!open && html`<span class="step-strip">
        ${run.tokens.map((each, n) => html`<button type="button" class="quiet" aria-pressed=${n === step.value}
          onClick=${() => (step.value = n)}>
        <bdi>${word(each, 12)}</bdi></button>`)}</span>`}</header>
    ${open && tab === "beam" && beams && html`<${BeamTree} run=${run} />`}
    ${open && tab === "temperature" && html`<${Temperature} />`}
    ${shown.current === run && html`<div class="steps-box" hidden=${!open || (tab !== "timeline" && (beams || tab !== "beam"))}>
      ${timeline}</div>`}</section>`;
}

function Timeline({ run }) {
  const live = source.value?.live;
  const fork = (n, id) =>
    go({ t: [...run.ids.slice(0, n), id].join(","), go: "1", target: null, a: null, p: null, x: null });
  return html`<div class="scroll-x" tabindex="0" role="region" aria-label="steps of decoding"><ol class="timeline">
    ${run.choices.map(
    (choice, n) => html`<li key=${n} class=${n === step.value ? "now" : ""} onPointerEnter=${() => (step.value = n)}>
    <button type="button" class="step-head" aria-pressed=${n === step.value} onClick=${() => (step.value = n)}>
      <span class="dim">${n + 1}</span> <bdi>${word(choice.chosen, 16)}</bdi>
      ${n < (run.forced ?? 0) ? html` <span class="tag">given</span>` : ""}</button>
    <ul>${choice.likeliest.slice(0, 5).map(([text, share], m) => {
      const id = choice.ids?.[m];
      const mine = id !== undefined ? id === run.ids[n] : text === choice.chosen;
      const inside = html`<span class="fill" style=${{ width: `${100 * share}%` }} aria-hidden="true"></span><bdi>
        ${word(text, 14)}</bdi><span class="share" data-value=${String(share)}>${percent(share)}</span>`;
      return html`<li class=${mine ? "mine" : ""}>
        ${live && !mine && id !== undefined ? html`<button type="button" title=${`write on from “${word(text)}”`}
          onClick=${() => fork(n, id)}>
        ${inside}</button>` : html`<span>${inside}</span>`}</li>`;
    })}</ul>${!choice.likeliest.some(([text]) => text === choice.chosen) && html`<p class="dim">chosen: ${percent(choice.probability)}
      </p>`}</li>`,
  )}</ol></div>
    <p class="note">Each column is one step: what the model held likely there. ${live ? "Choose another word, and it writes on from there. " : ""}A likely word is what the model would say, not what is right.${run.best.length > 1 ? html` Found: ${run.best.map((each) => html`<span class="found"
      dir="auto">
      ${each.text} <span class="dim">${number(each.score)}, normalised ${number(each.normalised)}</span>
      </span>`)}` : ""}</p>`;
}
