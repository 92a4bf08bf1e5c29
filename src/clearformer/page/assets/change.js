// Changes that are real: the run is made again with a value replaced, and every number behind it moves.
import { html, number, percent, word } from "page/ui.js";
import { go, route } from "page/route.js";
import { before, listing, source } from "page/state.js";

const changes = () => {
  try {
    return route.value.x ? JSON.parse(route.value.x) : {};
  } catch {
    return {};
  }
};
const put = (next) => go({ x: Object.keys(next).length ? JSON.stringify(next) : null });

/** Run again with a value at this address. */
export const change = (address, value) => put({ ...changes(), [address]: value });
export const undo = (address) =>
  put(Object.fromEntries(Object.entries(changes()).filter(([name]) => name !== address)));

export function Drop({ address, name }) {
  if (!source.value?.live) return null;
  const done = address in changes();
  return html`<button type="button" class="action" aria-pressed=${done} onClick=${() => (done ? undo(address) : change(address, 0))}>
    ${done ? `put ${name} back` : `drop ${name}`}</button>`;
}

/** Replace a row of weights: all on one key, or evenly. */
export function Patch({ address, size, picked, seen }) {
  if (!source.value?.live) return null;
  const done = address in changes();
  const row = (share) => Array.from({ length: size }, (_, n) => share(n));
  const open = row((n) => (seen ? (seen[n] ? 0 : 1) : 1));
  const total = open.reduce((a, b) => a + b, 0) || 1;
  return html`<span class="patch">${
    done
      ? html`<button type="button" class="action" aria-pressed="true" onClick=${() => undo(address)}>undo the patch</button>`
      : html`<button type="button" class="action" onClick=${() =>
          change(
            address,
            row((n) => (n === picked ? 1 : 0)),
          )}>patch: all on key ${picked}</button>
      <button type="button" class="action" onClick=${() =>
        change(
          address,
          open.map((each) => each / total),
        )}>patch: evenly</button>`
  }</span>`;
}

/** What is changed, and how the probabilities have moved. */
export function Changed() {
  const made = Object.entries(changes());
  if (!made.length) return null;
  const was = before.value;
  const now = listing.value;
  return html`<div class="changed-bar" role="status">
    <strong>Changed:</strong> ${made.map(([address, value]) => html`<span class="tag changed"><code>${address}
    </code> = ${Array.isArray(value) ? "a row" : number(value)} <button type="button" class="quiet"
      aria-label=${`undo ${address}`} onClick=${() => undo(address)}>×</button>
    </span>`)}
    ${was && now && html`<${Moved} was=${was} now=${now} />`}</div>`;
}

function Moved({ was, now }) {
  const before = was.run.choices,
    after = now.run.choices;
  if (!before || !after || before.length !== after.length)
    return html`<span class="dim">the run was made again with it</span>`;
  return html`<ol class="moved">${before.slice(0, 24).map((each, n) => {
    const by = after[n].probability - each.probability;
    return html`<li class=${Math.abs(by) < 5e-4 ? "dim" : ""}><bdi>${word(each.chosen, 12)}
      </bdi> ${percent(each.probability)} → <strong data-value=${String(after[n].probability)}>${percent(after[n].probability)}</strong>
      ${after[n].likeliest[0][0] !== each.chosen && each.likeliest[0][0] === each.chosen ? html` <span class="tag changed">now <bdi>
      ${word(after[n].likeliest[0][0], 12)}</bdi></span>` : ""}</li>`;
  })}</ol>`;
}
