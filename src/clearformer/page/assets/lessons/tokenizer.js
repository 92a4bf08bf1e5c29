// A text as a model reads it: pieces and their ids.
import { useEffect, useState } from "preact/hooks";
import { Choice, Rows, Say, Toggle, html } from "page/lessons/kit.js";
import { State, post, useAsked, useModel } from "page/lessons/ask.js";

const FIRST = "The animal didn't cross the street because it was tired. unbelievably 12345 आप कैसे हैं";
const PAUSE = 200; // milliseconds after the last key

export function Tokenizer({ source }) {
  const { model, some, choose, state } = useModel(source, (each) => each.takes.includes("text"));
  const [text, setText] = useState(FIRST);
  const [settled, settle] = useState(FIRST);
  const [special, setSpecial] = useState(true);
  useEffect(() => {
    const timer = setTimeout(() => settle(text), PAUSE);
    return () => clearTimeout(timer);
  }, [text]);
  const found = useAsked(() => model && post(source, "tokenize", { text: settled, special, model: model.name }), [settled, special, model?.name]);
  const told = found.value ?? found.old;
  return html`<section class="ls-panel" aria-label="tokenizer">
    <${Say} address=${model ? (model.kind === "encoder-decoder" ? "encoder.embed.tokens" : "stack.embed.tokens") : null} where="the row of the table that each token takes">Type a text. Frequent words are one token, rare ones are cut into pieces, and a model never sees letters, only these numbers. ␣ stands for a space in front.</${Say}>
    ${model ? html`<div class="ls-tools"><${Choice} name="model" value=${model.name} options=${some.map((each) => [each.name, each.name])} onChange=${choose} />
      <${Toggle} name="with the model's special tokens" on=${special} onChange=${setSpecial} /></div>
    <label class="ls-long">Text <textarea rows="3" dir="auto" value=${text} onInput=${(event) => setText(event.target.value)}></textarea></label>
    ${told ? html`<${Tokens} text=${settled} told=${told} />` : null}${(found.error || !told) && html`<${State} of=${found} what="reading" />`}` : html`<${State} of=${state} what="looking for models" />`}
  </section>`;
}

const shown = (piece) => piece.replace(/^[▁Ġ]/u, "␣").replace(/[\p{Cc}\p{Cf}]/gu, (sign) => `⟨U+${sign.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);

function Tokens({ text, told }) {
  const signs = [...text].length;
  const bytes = new TextEncoder().encode(text).length;
  const own = told.special.filter((each) => !each).length;
  return html`<p class="ls-result" role="status"><b>${told.ids.length}</b> tokens for ${signs} characters (${bytes} bytes in UTF-8)${own ? `: ${(signs / own).toFixed(2)} characters a token` : ""}.</p>
    <ol class="ls-chips">${told.pieces.slice(0, 400).map((piece, n) => html`<li class=${told.special[n] ? "ls-special" : n % 2 ? "ls-odd" : ""}><span dir="auto">${shown(piece)}</span><small>${told.ids[n]}</small></li>`)}</ol>
    <details><summary>as a table</summary><${Rows} label="tokens" heads=${["token", "piece", "id", "of the text"]} rows=${told.pieces.slice(0, 400).map((piece, n) => [
      String(n), shown(piece), String(told.ids[n]), told.special[n] ? "special" : `characters ${told.offsets[n][0]} to ${told.offsets[n][1]}`])} /></details>`;
}
