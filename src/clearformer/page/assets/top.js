// The bar on top: which model, which text, how it is written, and how the page looks.
import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "page/html.js";
import { go, link, route } from "page/route.js";
import { helping } from "page/help.js";
import { Export, Share } from "page/export.js";
import { LeftOut } from "page/leftout.js";
import { busy, image, listing, model, models, run, size, source, step, theme } from "page/state.js";

const FRESH = { target: null, t: null, go: null, x: null, a: null, p: null, k: null, s: null };

export function Top() {
  const live = source.value?.live ?? true;
  return html`<header class="top"><div class="brand">
    <a href=${link({ a: null, v: null, lesson: null, p: null, k: null })}>
    <svg viewBox="0 0 32 32" width="22" height="22" aria-hidden="true">
    <rect width="32" height="32" rx="7" class="logo-ground" /><g class="logo-lines">
    <path d="M9 24V8M16 24V8M23 24V8" /><path class="logo-cross" d="M9 20 23 12" /></g></svg><h1>Clearformer</h1></a>
    </div>
    ${live ? html`<${Asking} />` : html`<p class="exported" dir="auto">
      ${listing.value?.run.text ?? ""} <span class="tag">exported file</span></p><${LeftOut} />`}
    <div class="looks">
      ${live && html`<a class="button" href=${link({ lesson: "" })}>lessons</a>`}
      <label class="unseen-label"><span class="unseen">theme</span>
        <select value=${theme.value} onChange=${(event) => (theme.value = event.target.value)}>
        <option value="auto">auto</option><option value="light">light</option><option value="dark">dark</option>
        </select></label>
      <label class="unseen-label size"><span class="unseen">size</span>
        <select value=${size.value} onChange=${(event) => (size.value = event.target.value)}>
        <option value="normal">normal</option><option value="lecture">lecture</option></select></label>
      <${Share} /><${Export} />
        <button type="button" aria-label="help: keys" title="help" onClick=${() => (helping.value = true)}>?</button>
        </div></header>`;
}

function Asking() {
  const given = route.value;
  const chosen = model.value;
  const [draft, setDraft] = useState({});
  const names = ["text", "pair", "ids", "to", "target", "beams", "temp", "seed", "max"];
  const last = useRef(given);
  useEffect(
    () => {
      if (last.current.text || last.current.ids) setDraft({}); // else the example came in, and one may be typing already
      last.current = given;
    },
    names.concat("model").map((name) => given[name]),
  );
  const value = (name) => draft[name] ?? given[name] ?? "";
  const type = (name) => (event) => setDraft({ ...draft, [name]: event.target.value });
  const takes = chosen?.takes ?? ["text"];
  const writes = ["encoder-decoder", "decoder", "captioner"].includes(chosen?.kind);
  const forced = draft.forced ?? given.target !== undefined;
  const submit = (event) => {
    event?.preventDefault();
    const next = { ...FRESH, model: chosen?.name };
    for (const name of names) next[name] = value(name) || null;
    if (!forced || !writes) next.target = null;
    else next.target = value("target");
    const typed = takes.includes("text") ? next.text : next.ids;
    if (!typed?.trim() && !takes.includes("image"))
      return (
        document.getElementById("text")?.setCustomValidity("type something first"),
        document.getElementById("text")?.reportValidity()
      );
    if (takes.includes("text")) next.ids = given.ids && !draft.text && !next.text ? next.ids : null;
    setDraft({});
    go(next);
    queueMicrotask(() => run());
  };
  const field = (name, text, more = {}) =>
    html`<label>${text} <input name=${name} value=${value(name)} onInput=${type(name)} ...${more} /></label>`;
  return html`<form class="asking" onSubmit=${submit}>
    <div class="ask-main"><label class="unseen-label"><span class="unseen">model</span>
      <select value=${chosen?.name} onChange=${(
      event,
    ) => {
      image.value = null;
      go({ ...FRESH, model: event.target.value, text: null, pair: null, ids: null, to: null });
    }}>${models.value.map((each) => html`<option value=${each.name}>${each.name}</option>`)}</select></label>
      ${
        takes.includes("image")
          ? html`<label class="upload">image <input id="text" type="file" accept="image/png,image/jpeg" onChange=${upload} />
            </label>`
          : takes.includes("text")
            ? html`<label class="text-field"><span class="unseen">text</span>
              <input id="text" name="text" dir="auto" autocomplete="off" spellcheck=${false}
                placeholder="type a text …" value=${value("text")} onInput=${(
                event,
              ) => {
                event.target.setCustomValidity("");
                type("text")(event);
              }} /></label>`
            : html`<label class="text-field"><span class="unseen">ids</span>
              <input id="text" name="ids" inputmode="numeric" placeholder="ids, such as 1 2 3" value=${value("ids")}
                onInput=${type("ids")} />
              </label>`
      }
      ${takes.includes("pair") && html`<label class="text-field"><span class="unseen">second text</span>
        <input name="pair" dir="auto" placeholder="second text, or context" value=${value("pair")} onInput=${type("pair")} />
        </label>`}
      <button class="primary" disabled=${busy.value && !Object.keys(draft).length}>${busy.value ? "…" : "trace"}
        </button></div>
    ${
      writes &&
      html`<details class="options" open=${forced || undefined}><summary>how it writes</summary><div class="option-row">
      <span class="switch" role="group" aria-label="what is written">
        <button type="button" aria-pressed=${!forced} onClick=${() => setDraft({ ...draft, forced: false })}>generate</button>
        <button type="button" aria-pressed=${forced} onClick=${() => setDraft({ ...draft, forced: true })}>given target</button>
        </span>
      ${forced ? field("target", "target", { dir: "auto", class: "long" }) : html`${field("beams", "beams", { type: "number", min: 1, max: 64 })}${field("temp", "temperature", { type: "number", min: 0, step: 0.1 })}${field("seed", "seed", { type: "number", min: 0 })}${field("max", "most tokens", { type: "number", min: 1 })}`}
      ${chosen.languages?.length > 0 && html`<label>to <select value=${value("to")} onChange=${type("to")}>
        <option value="">–</option>${chosen.languages.map((each) => html`<option>${each}</option>`)}</select></label>`}
      <${Scrubber} /></div></details>`
    }
  </form>`;

  function upload(event) {
    const file = event.target.files[0];
    if (!file) return;
    const reader = new FileReader();
    reader.onload = () => (image.value = reader.result);
    reader.readAsDataURL(file);
  }
}

/** Which step of decoding is marked everywhere. */
function Scrubber() {
  const tokens = listing.value?.run.choices ? listing.value.run.tokens : null;
  if (!tokens?.length) return null;
  return html`<label class="scrubber">step <input type="range" min="0" max=${tokens.length - 1} value=${step.value}
    onInput=${(event) => (step.value = Number(event.target.value))} /> <output>
    ${step.value + 1} of ${tokens.length}</output></label>`;
}
