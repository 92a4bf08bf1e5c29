// Attention by what it carries: the length of weight × value × W_O, beside the bare weights.
import { useMemo } from "preact/hooks";
import { signal } from "@preact/signals";
import { html, HeatMap, Waiting } from "page/ui.js";
import { go } from "page/route.js";
import { useMarks } from "page/visible.js";
import { useTensor } from "page/tensor.js";
import { Head, Note, useAsked, useAttention } from "page/views/ask.js";

export function CarriedView() {
  const { group, head, control } = useAttention();
  const name = `${group}.h${head}`;
  const { value: found, error } = useAsked("carried", { address: name });
  const { value: weights } = useTensor(`${name}.weights`);
  const marks = useMarks(group);
  const link = useMemo(() => signal({}), []);
  const shared = { square: true, tall: 380, link, roles: ["q", "k"], rowName: "query", colName: "key", marks };
  const values = useMemo(() => (found ? Float32Array.from(found.values.flat()) : null), [found]);
  return html`<section class="level"><${Head} title="What does attention carry?">
    <p>A weight on an empty value brings nothing.</p><div class="controls">${control}</div></${Head}>
    ${
      !found
        ? html`<${Waiting} error=${error} what="what is carried" />`
        : html`<${Note} found=${found} />
    <div class="pair-maps">${weights && html`<article class="panel"><h3>weights</h3>
      <${HeatMap} ...${shared} values=${weights.values} rows=${weights.shape[0]} cols=${weights.shape[1]} kind="share"
        rowWords=${weights.words.t} colWords=${weights.words.s} title=""
        onOpen=${(r, c) => go({ a: `${name}.weights[${r},${c}]`, v: null, p: null })} />
      </article>`}
      <article class="panel"><h3>carried, ‖weight · value · W_O‖</h3>
        <${HeatMap} ...${shared} values=${values} rows=${found.shape[0]} cols=${found.shape[1]} kind="length"
          rowWords=${found.words.t} colWords=${found.words.s} title=""
          onOpen=${(r, c) => go({ a: `${name}.weights[${r},${c}]`, v: null, p: null })} />
        </article></div>`
    }</section>`;
}
