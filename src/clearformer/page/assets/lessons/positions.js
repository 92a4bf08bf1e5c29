// Sinusoidal positions: the 128 × 50 map over a binary counter, two curves, and the dot product that falls with distance.
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { Plot, Say, Slider, html, number } from "page/lessons/kit.js";
import { dot, encoding } from "page/lessons/math.js";
import { scale } from "page/ui.js";

const WORDS = 50, BITS = 6;
const places = Array.from({ length: WORDS }, (_, n) => n);

export function Positions() {
  const [width, setWidth] = useState(128);
  const [word, setWord] = useState(2);
  const [dimension, setDimension] = useState(8);
  const waves = useMemo(() => places.map((place) => encoding(place, width)), [width]);
  const at = Math.min(dimension, width - 1);
  const pair = at - (at % 2);
  const length = 2 * Math.PI * 10000 ** (pair / width);
  const away = Array.from({ length: 2 * WORDS - 1 }, (_, n) => n - WORDS + 1);
  const middle = encoding(word, width);
  return html`<section class="ls-panel" aria-label="positions">
    <${Say} address="encoder.embed.positions" where="what is added to the embeddings">Each column is a word's position, each row one of ${width} dimensions. Rows wave more slowly from top to bottom, as the bits of a counter flip more seldom; far down, all 50 words look alike.</${Say}>
    <div class="ls-tools">
      <${Slider} name="word" value=${word} low=${0} high=${WORDS - 1} onChange=${setWord} />
      <${Slider} name="dimension" value=${at} low=${0} high=${width - 1} onChange=${setDimension} />
      <${Slider} name="width d" value=${width} low=${2} high=${256} step=${2} onChange=${setWidth} /></div>
    <output class="ls-read" data-value=${String(waves[word][at])}>PE(${word}, ${at}) = ${at % 2 ? "cos" : "sin"}(${word} / 10000^(${pair}/${width})) = ${number(waves[word][at])}</output>
    <${Strip} title=${`PE: ${width} dimensions ↓ ${WORDS} words →`} rows=${width} value=${(r, c) => waves[c][r]} mark=${[at, word]} tall=${Math.max(128, Math.min(width * 3, 384))}
      pick=${(r, c) => { setWord(c); setDimension(r); }} names=${[`0`, `${width - 1}`]} />
    <${Strip} title=${`Binary counter: ${BITS} bits ↓ the same words →`} rows=${BITS} value=${(r, c) => ((c >> r) & 1 ? 1 : -1)} mark=${[-1, word]} tall=${BITS * 14} names=${["bit 0", `bit ${BITS - 1}`]} />
    <p>${word} in binary is ${word.toString(2).padStart(BITS, "0")}. A whole wave of dimension ${at} takes ${length < 1000 ? length.toFixed(1) : Math.round(length).toLocaleString("en-US")} words.</p>
    <${Plot} title=${`Dimensions ${pair} and ${pair + 1}`} places=${places} lines=${[{ name: `sin, dimension ${pair}`, values: waves.map((row) => row[pair]) }, { name: `cos, dimension ${pair + 1}`, values: waves.map((row) => row[pair + 1]) }]}
      across="words" up="PE" mark=${word} low=${-1} />
    <${Plot} title=${`The vector of word ${word}`} places=${middle.map((_, n) => n)} lines=${[{ name: `PE(${word})`, values: middle }]} across="dimensions" up="PE" mark=${at} low=${-1} />
    <${Plot} title=${`PE(p) · PE(p + k): the same for every p`} places=${away} lines=${[{ name: `d = ${width}`, values: away.map((k) => dot(encoding(word + WORDS, width), encoding(word + WORDS + k, width))) }]}
      across="distance k" up="dot product" mark=${0} />
  </section>`;
}

/** A picture with a pixel a cell, as wide as there is room; all strips have their columns below one another. */
function Strip({ title, rows, value, mark, tall, names, pick }) {
  const canvas = useRef(null);
  useLayoutEffect(() => {
    const isDark = document.documentElement.dataset.theme === "dark" || (document.documentElement.dataset.theme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
    const { ramp } = scale("signed", [1], isDark);
    const context = canvas.current.getContext("2d");
    const picture = context.createImageData(WORDS, rows);
    for (let r = 0; r < rows; r++) for (let c = 0; c < WORDS; c++) {
      const n = 3 * Math.round(((value(r, c) + 1) / 2) * 255);
      picture.data.set([ramp[n], ramp[n + 1], ramp[n + 2], 255], 4 * (r * WORDS + c));
    }
    context.putImageData(picture, 0, 0);
  });
  const click = (event) => {
    const box = canvas.current.getBoundingClientRect();
    const part = (at, size, count) => Math.max(0, Math.min(count - 1, Math.floor((at / size) * count)));
    pick?.(part(event.clientY - box.top, box.height, rows), part(event.clientX - box.left, box.width, WORDS));
  };
  return html`<figure class="ls-strip"><figcaption>${title}</figcaption>
    <div class="ls-side" aria-hidden="true"><span>${names[0]}</span><span>${names[1]}</span></div>
    <div class="ls-map" style=${{ height: `${tall}px` }} onClick=${click}><canvas ref=${canvas} width=${WORDS} height=${rows} aria-hidden="true"></canvas>
      <i class="ls-column" style=${{ left: `${(100 * mark[1]) / WORDS}%`, width: `${100 / WORDS}%` }}></i>
      ${mark[0] >= 0 && html`<i class="ls-row" style=${{ top: `${(100 * mark[0]) / rows}%`, height: `${Math.max(100 / rows, 0.8)}%` }}></i>`}</div></figure>`;
}
