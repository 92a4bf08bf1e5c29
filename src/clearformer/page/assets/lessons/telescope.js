// Heads side by side on one sentence, in a model that runs: within the source, or from the target to the source.
import { useState } from "preact/hooks";
import { Choice, Say, html } from "page/lessons/kit.js";
import { State, trace, useAsked, useModel } from "page/lessons/ask.js";
import { HeatMap, to } from "page/ui.js";

const KINDS = {
  self: {
    first: "I saw the man with the telescope.",
    say: "Who has the telescope? Look at the row of a piece of “telescope” and see which words each head looks at. In the notes' drawing one head reads “saw with the telescope” and one “the man with the telescope”; what heads of a trained model do is rarely so tidy.",
    fits: (each) => each.takes.includes("text"),
  },
  cross: {
    first: "I like to eat ice cream.",
    say: "Each row is the position at which the next word is about to be written, each column a word of the source. Training has made rows look at the words they translate; the last column, the end of the text, takes what is left over.",
    fits: (each) => each.takes.includes("text") && each.kind === "encoder-decoder",
  },
};

export function Telescope({ source, kind = "self" }) {
  const { first, say, fits } = KINDS[kind];
  const { model, some, choose, state } = useModel(source, fits);
  const [text, setText] = useState(first);
  const [typed, setTyped] = useState(first);
  const [chosen, setChosen] = useState("");
  const body = model && { model: model.name, text, options: model.kind === "encoder-decoder" ? { num_beams: 1 } : { max_new_tokens: 1 } };
  const run = useAsked(() => body && trace(source, model.kind === "encoder" ? { model: model.name, text } : body), [model?.name, text]);
  const attentions = run.value ? Object.entries(run.value.listing.facts.attentions).filter(([name, each]) => (kind === "cross" ? each.crosses : !each.crosses && !name.startsWith("decoder"))) : [];
  const usual = kind === "cross" ? attentions.at(-1) : attentions[0];
  const [layer, about] = attentions.find(([name]) => name === chosen) ?? usual ?? [];
  const found = useAsked(async () => layer && run.value.tensor(`${layer}.weights`), [layer, run.value]);
  return html`<section class="ls-panel" aria-label="heads side by side">
    <${Say}>${say}</${Say}>
    ${!model ? html`<${State} of=${state} what="looking for models" />` : html`
    <form class="ls-tools" onSubmit=${(event) => { event.preventDefault(); setText(typed); }}><label class="ls-long">Sentence <input dir="auto" value=${typed} onInput=${(event) => setTyped(event.target.value)} /></label>
      <button class="ls-button">Run the model</button>
      <${Choice} name="model" value=${model.name} options=${some.map((each) => [each.name, each.name])} onChange=${choose} />
      ${layer && html`<${Choice} name="attention" value=${layer} options=${attentions.map(([name]) => [name, name])} onChange=${setChosen} />`}</form>
    ${run.value?.listing.run?.text && kind === "cross" && html`<p class="ls-result" dir="auto">→ ${run.value.listing.run.text}</p>`}
    <${State} of=${run.value ? found : run} what="running the model" />
    ${found.value && layer && html`<${Heads} tensor=${found.value} layer=${layer} about=${about} more=${{ text, model: model.name }} />`}`}
  </section>`;
}

function Heads({ tensor, layer, about, more }) {
  const [heads, rows, cols] = tensor.shape;
  const words = (axis) => tensor.words[tensor.axes[axis]];
  const size = rows * cols;
  return html`<div class="ls-heads">${Array.from({ length: heads }, (_, n) => html`<div key=${n}>
    <${HeatMap} title=${`head ${n}`} values=${tensor.values.subarray(n * size, (n + 1) * size)} rows=${rows} cols=${cols} kind="share" square rowWords=${words(1)} colWords=${words(2)} rowName="queries" colName="keys" tall=${320} />
    <a href=${to(`${layer}.h${n}.weights`, more)}>look into head ${n}</a></div>`)}</div>
    ${about.key_heads < about.heads && html`<p class="ls-ours">${about.heads} heads of queries share ${about.key_heads} heads of keys and values.</p>`}`;
}
