// The logit lens: what each layer would say if it were the last one.
import { html, brief, label, rgb, ink, scale, to, Waiting, word } from "page/ui.js";
import { Head, Note, useAsked } from "page/views/ask.js";
import { listing, step } from "page/state.js";

export function LensView() {
  const { value: found, error } = useAsked("lens", { top: "5" });
  const colours = scale("share", []);
  const mine = listing.value.run.choices ? listing.value.position(step.value) : -1;
  return html`<section class="level"><${Head} title="What would each layer say?">
    <p>The final norm and the head, applied behind every layer.</p></${Head}>
    ${
      !found
        ? html`<${Waiting} error=${error} what="the lens" />`
        : html`<${Note} found=${found} />
    <div class="table-box lens" tabindex="0" role="region" aria-label="logit lens"><table><thead><tr>
      <th scope="col">layer ↓ position →</th>
      ${found.words.map((each, n) => html`<th scope="col" class=${n === mine ? "now" : ""} dir="auto">
      ${each ? label(n, found.words) : "the text"}</th>`)}</tr></thead>
      <tbody>${found.layers.map((layer, n) => html`<tr key=${layer}><th scope="row"><a href=${to(layer)}>
        ${layer.split(".").slice(0, 2).join(".")}</a></th>
        ${found.guesses[n].map((best, p) => html`<td key=${p}
          title=${best.map((each) => `${word(each.word)} ${each.probability.toFixed(3)}`).join("\n")}
          data-value=${String(best[0].probability)}
          style=${{ background: rgb(colours, best[0].probability), color: ink(colours, best[0].probability) }}>
        <bdi>${word(best[0].word, 12)}</bdi> <small>${brief(best[0].probability)}</small></td>`)}</tr>`)}</tbody>
        </table></div>`
    }</section>`;
}
