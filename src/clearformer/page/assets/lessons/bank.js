// Static against contextual: the same word in several sentences, layer by layer in a model that runs.
import { useState } from "preact/hooks";
import { Choice, Matrix, Plot, Say, Slider, html, number } from "page/lessons/kit.js";
import { State, post, trace, useAsked, useModel } from "page/lessons/ask.js";
import { cosine, flat, mean } from "page/lessons/math.js";
import { to } from "page/ui.js";

const SETS = {
  bank: { word: "bank", sentences: ["The money in the bank grows.", "I put my money into the bank.", "The river bank is green.", "We sat on the bank of the river."] },
  apple: { word: "apple", sentences: ["An apple a day keeps the doctor away.", "This apple is better than an orange.", "Apple makes great phones.", "I bought a computer from Apple."] },
  left: { word: "left", sentences: ["He has left the house.", "She has left the city.", "He took the left hand.", "Turn left at the corner."] },
};

/** The vectors of a word behind every layer: the mean of its pieces where it is cut. */
async function vectors(source, model, text, word) {
  const read = await post(source, "tokenize", { text, model: model.name });
  const at = text.toLowerCase().search(new RegExp(`(?<![\\p{L}\\p{N}])${word.toLowerCase().replace(/[^\p{L}\p{N}]/gu, "\\$&")}(?![\\p{L}\\p{N}])`, "u"));
  if (at < 0) throw new Error(`“${text}” does not have the word “${word}”: type a sentence that does.`);
  const from = [...text.slice(0, at)].length; // offsets count whole characters
  const end = from + [...word].length;
  const places = read.offsets.flatMap(([a, b], n) => (!read.special[n] && a < end && b > from ? [n] : []));
  const run = await trace(source, model.kind === "encoder-decoder" ? { model: model.name, text, options: { num_beams: 1 } } : { model: model.name, text });
  const layers = streams(run.listing, model.kind === "encoder-decoder" ? "encoder" : "stack");
  const found = await Promise.all(layers.map(({ address }) => run.tensor(address)));
  const own = ({ values, shape }) => Array.from({ length: shape[1] }, (_, m) => places.reduce((sum, t) => sum + values[t * shape[1] + m], 0) / places.length);
  return { text, places, pieces: places.map((n) => read.pieces[n]), layers, vectors: found.map(own) };
}

/** The stream from the table to the top: the tokens, and the last sum of each block. */
export function streams(listing, stack) {
  const wide = listing.addresses.filter(({ address, axes }) => address.startsWith(`${stack}.`) && axes.length === 2 && axes.includes("m"));
  const found = [{ name: "static", address: `${stack}.embed.tokens` }];
  for (let n = 0; ; n++) {
    const last = wide.findLast(({ address }) => address.startsWith(`${stack}.${n}.`));
    if (!last) break;
    found.push({ name: `layer ${n + 1}`, address: last.address });
  }
  return found;
}

export function Bank({ source, set = "bank" }) {
  const { model, some, choose, state } = useModel(source, (each) => each.takes.includes("text") && (each.kind === "encoder" || (each.kind === "encoder-decoder" && each.languages.length && each.source !== "de")));
  const [given, setGiven] = useState(SETS[set]);
  const [typed, setTyped] = useState(SETS[set]);
  const [layer, setLayer] = useState(99);
  const start = (name) => { setGiven(SETS[name]); setTyped(SETS[name]); };
  const found = useAsked(async () => {
    if (!model) return null;
    const made = [];
    for (const text of given.sentences) made.push(await vectors(source, model, text, given.word)); // one run at a time
    return made;
  }, [model?.name, JSON.stringify(given)]);
  const submit = (event) => { event.preventDefault(); setGiven(typed); };
  const key = Object.keys(SETS).find((name) => SETS[name].word === given.word) ?? "bank";
  return html`<section class="ls-panel" aria-label="static against contextual">
    <${Say} address="encoder.0.self.h0.weights" where="the attention that mixes the words">The first two sentences share a sense, the last two the other. In the table of embeddings the word is one vector, so every cosine is 1; going up the layers it becomes a vector of its sentence. Whether the two senses part is what this small model has learned or not; the line below the curves says which.</${Say}>
    ${!model ? html`<${State} of=${state} what="looking for models" />` : html`
    <div class="ls-tools"><${Choice} name="word" value=${key} options=${Object.keys(SETS).map((name) => [name, name])} onChange=${start} />
      <${Choice} name="model" value=${model.name} options=${some.map((each) => [each.name, each.name])} onChange=${choose} /></div>
    <form class="ls-form" onSubmit=${submit}><label>word <input value=${typed.word} onInput=${(event) => setTyped({ ...typed, word: event.target.value.trim() })} /></label>
      ${typed.sentences.map((text, n) => html`<label>${"ABCD"[n]} <input dir="auto" value=${text} onInput=${(event) => setTyped({ ...typed, sentences: typed.sentences.map((each, m) => (m === n ? event.target.value : each)) })} /></label>`)}
      <button class="ls-button">Run the model</button></form>
    <${State} of=${found} what="running the model on four sentences" />
    ${found.value && html`<${Seen} runs=${found.value} layer=${layer} setLayer=${setLayer} word=${given.word} model=${model.name} />`}`}
  </section>`;
}

function Seen({ runs, layer, setLayer, word, model }) {
  const { layers } = runs[0];
  const at = Math.min(layer, layers.length - 1);
  const pairs = [[0, 1], [2, 3], [0, 2], [1, 3]];
  const place = (list) => list.map((_, n) => n);
  const name = (n) => "ABCD"[n];
  const lines = pairs.map(([a, b]) => ({ name: `${name(a)} and ${name(b)}: ${a + 1 === b ? "the same sense" : "another sense"}`, values: layers.map((_, n) => cosine(runs[a].vectors[n], runs[b].vectors[n])) }));
  const table = runs.map((one) => runs.map((other) => cosine(one.vectors[at], other.vectors[at])));
  const same = mean([table[0][1], table[2][3]]);
  const other = mean([table[0][2], table[0][3], table[1][2], table[1][3]]);
  const apart = same - other;
  const verdict = at === 0 ? "the table knows no senses" : apart > 0.02 ? "the senses have parted" : apart > 0 ? "the senses hardly part" : "this model does not tell these senses apart here";
  const cut = runs.filter((run) => run.pieces.length > 1 || run.pieces[0] !== runs[0].pieces[0]);
  return html`${cut.length > 0 && html`<p class="ls-ours">this model reads the word as ${[...new Set(runs.map((run) => run.pieces.join(" + ")))].join(" or ")}: where pieces differ, even the static vectors do; of several pieces the mean is taken.</p>`}
    <${Plot} title=${`Cosine of “${word}” in two sentences`} places=${place(layers)} lines=${lines} across="layers, 0 is the table" up="cosine" mark=${at} low=${Math.floor(10 * Math.min(0.9, ...lines.flatMap((line) => line.values))) / 10} />
    <${Slider} name="layer" value=${at} low=${0} high=${layers.length - 1} show=${(n) => layers[n].name} onChange=${setLayer} />
    <p class="ls-result" role="status">Mean cosine, ${layers[at].name}: <b data-value=${String(same)}>${number(same)}</b> within a sense, <b data-value=${String(other)}>${number(other)}</b> between them: ${verdict}.</p>
    <div class="ls-beside"><${Matrix} title=${`Cosines, ${layers[at].name}`} rows=${runs.map((_, n) => name(n))} cols=${runs.map((_, n) => name(n))} values=${table} />
      <${Map2} runs=${runs} at=${at} name=${name} /></div>
    <ul class="ls-links">${runs.map((run, n) => html`<li>${name(n)}: <a href=${to(`${layers[at].address}[${run.places[0]}]`, { text: run.text, model })}>the vector in “<span dir="auto">${run.text}</span>”</a></li>`)}</ul>`;
}

/** The four vectors on the two directions in which they differ most. */
function Map2({ runs, at, name }) {
  const { points, shown } = flat(runs.map((run) => run.vectors[at]));
  const most = Math.max(1e-9, ...points.flat().map(Math.abs));
  const x = ([a]) => 150 + (a / most) * 110;
  const y = ([, b]) => 110 - (b / most) * 85;
  const alike = most < 1e-6;
  return html`<figure class="ls-plot ls-small"><figcaption>In two dimensions <small>${alike ? "all four are one point" : `${Math.round(100 * (shown[0] + (shown[1] ?? 0)))} % of the differences`}</small></figcaption>
    <svg viewBox="0 0 300 220" role="img" aria-label=${alike ? "one point" : points.map((point, n) => `${name(n)} at ${number(point[0])}, ${number(point[1])}`).join("; ")}>
      <path class="ls-rule" d="M10 110H290M150 10V210" />${points.map((point, n) => html`<g class="ls-dot ls-${n < 2 ? "a" : "b"}"><circle cx=${alike ? 150 : x(point)} cy=${alike ? 110 : y(point)} r="6" /><text x=${(alike ? 150 + 14 * n : x(point)) + 9} y=${(alike ? 110 : y(point)) - 6}>${name(n)}</text></g>`)}</svg></figure>`;
}
