// Two texts side by side: where the runs part ways, and what happens when a row of one is put into the other.
import { useRef, useState } from "preact/hooks";
import { html, Bars, number, to, Waiting, useAnswer, Table } from "page/ui.js";
import { ASKED, body, route } from "page/route.js";
import { write } from "page/address.js";
import { change } from "page/change.js";
import { Head, Note } from "page/views/ask.js";
import { image, listing, root, source } from "page/state.js";

export function CompareView() {
  const [text, setText] = useState("");
  const [other, setOther] = useState({});
  const asking = useRef(0); // the last text that was given counts, whichever answer comes first
  const live = source.value.live;
  const all = listing.value;
  const ids = !!route.value.ids;
  const run = async (event) => {
    event.preventDefault();
    if (!text.trim()) return;
    const mine = ++asking.current;
    const set = (found) => mine === asking.current && setOther(found);
    set({ waiting: true });
    try {
      const asked = Object.fromEntries(ASKED.map((name) => [name, route.value[name]]));
      const next = { ...asked, x: undefined, [ids ? "ids" : "text"]: text };
      // Both are looked at on the same target where there is one, so that positions can be compared.
      if (all.run.ids && all.run.choices && all.facts.kind === "encoder-decoder")
        Object.assign(next, { t: all.run.ids.join(","), target: undefined, go: undefined });
      set({ source: await root.value.open(body(next, image.value)), run: all });
    } catch (error) {
      set({ error });
    }
  };
  const mine = other.run === all ? other.source : null;
  return html`<section class="level"><${Head} title="Compare two texts">
    <p>Where do two runs part ways? Best with one word changed, so that both have as many tokens.</p></${Head}>
    ${!live ? html`<p class="problem">A second run needs the model: ${source.value.leftOut?.command || "open it with clearformer look"}
      </p>` : html`<form class="controls" onSubmit=${run}><label class="text-field">
      ${ids ? "other ids" : "other text"} <input dir="auto" value=${text}
        onInput=${(event) => setText(event.target.value)} placeholder=${route.value.text ?? ""} />
      </label><button class="primary">compare</button></form>`}
    ${other.waiting && html`<${Waiting} what="the other run" />`}${other.error && html`<${Waiting} error=${other.error} />`}
    ${mine && html`<${Differences} key=${mine.id} other=${mine} />`}</section>`;
}

function Differences({ other }) {
  const { value: found, error } = useAnswer(
    () => source.value.ask("compare", { other: other.id }),
    [source.value, other.id],
  );
  if (!found) return html`<${Waiting} error=${error} what="the differences" />`;
  const layers = found.steps.filter((step) => /\.(sum|after|placed|tokens|final|logits)$/.test(step.address));
  return html`<${Note} found=${found} />
    <p>${found.first ? html`First difference: <a class="first-difference" href=${to(found.first)}><code>${found.first}</code>
      </a>.` : "No step differs."} ${found.left_out.length > 0 && html`<span class="dim">
      ${found.left_out.length} steps have other shapes, because the texts differ in length.</span>`}</p>
    <article class="panel"><h3>along the stream</h3>
      <${Bars} label="share of each step that differs" most=${Math.max(1, ...layers.map((each) => each.share))}
        items=${layers.map((step) => ({ name: html`<code>
      ${step.address}</code>`, value: step.share, href: to(step.address) }))} /></article>
    <details><summary>all ${found.steps.length} steps</summary>
      <${Table} label="all steps" heads=${["step", "largest", "mean", "share"]}
        rows=${found.steps.map((step) => [html`<a href=${to(step.address)}>
      <code>${step.address}</code></a>`, number(step.largest), number(step.mean), number(step.share)])} /></details>
    <${PatchForm} other=${other} steps=${found.steps} />`;
}

/** Put a row of the other run into this one, and run it again. */
function PatchForm({ other, steps }) {
  const all = listing.value;
  const able = steps.filter(
    ({ address }) =>
      all.step(address)?.axes.length === 2 && all.step(address).axes[0] === "t" && address !== "head.logits",
  );
  const [name, setName] = useState(able.find((step) => step.address.endsWith(".sum"))?.address ?? able[0]?.address);
  const [row, setRow] = useState(0);
  const [error, setError] = useState(null);
  if (!able.length) return null;
  const rows = all.step(name).shape[0];
  const patch = async () => {
    try {
      const at = write({ name, cells: [Math.min(row, rows - 1)] });
      change(at, Array.from((await other.tensor(at)).values));
    } catch (failed) {
      setError(failed);
    }
  };
  return html`<article class="panel"><h3>patch</h3>
    <p class="dim">The values of the other run at one step and position are put into this one; the model goes on from there. What moves depends on them.</p>
    <div class="controls"><label>step <select value=${name} onChange=${(event) => setName(event.target.value)}>
      ${able.map((step) => html`<option>${step.address}</option>`)}</select></label>
      <label>position <input type="number" min="0" max=${rows - 1} value=${row}
        onInput=${(event) => setRow(Number(event.target.value) || 0)} />
      </label><button type="button" class="primary" onClick=${patch}>patch and run</button></div>
      ${error && html`<${Waiting} error=${error} />`}</article>`;
}
