// Python that reproduces what is shown.
import { route } from "page/route.js";
import { listing } from "page/state.js";

const quoted = (text) =>
  JSON.stringify(text).replace(
    /[\u007f-\u009f\u2028\u2029]/g,
    (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );

/** The call that made the trace. */
export function traced() {
  const asked = route.value;
  const told = listing.value?.data;
  const run = listing.value?.run ?? {};
  const model = told?.model ?? asked.model ?? "en-de";
  const given = [];
  if (asked.ids)
    given.push(
      `[${asked.ids
        .split(/[\s,]+/)
        .filter(Boolean)
        .join(", ")}]`,
    );
  else if (run.picture) given.push(`"image.png"`);
  else given.push(quoted(asked.text ?? run.text ?? ""));
  if (asked.pair) given.push(quoted(asked.pair));
  if (asked.to) given.push(`to=${quoted(asked.to)}`);
  if (asked.verb) given.push(`verb=${quoted(asked.verb)}`);
  // What was written is given, so that the same is looked at whatever search or draw it came from.
  if (run.ids && run.choices) given.push(`target=[${run.ids.join(", ")}]`);
  if (asked.x) given.push(`change=${changes(JSON.parse(asked.x))}`);
  return `trace = cf.load(${quoted(model)}).trace(${given.join(", ")})`;
}

const changes = (made) =>
  `{${Object.entries(made)
    .map(
      ([address, value]) =>
        `${quoted(address)}: ${Array.isArray(value) ? `torch.tensor(${JSON.stringify(value)})` : value}`,
    )
    .join(", ")}}`;

export function python(address) {
  const torch = traced().includes("torch.") ? "import torch\n" : "";
  const one = /\[[\d,]+\]$/.test(address);
  return `${torch}import clearformer as cf\n\n${traced()}\nprint(trace[${quoted(address)}].values${one ? ".tolist()" : ""})\n${one ? `print(trace.explain(${quoted(address)}))\n` : ""}`;
}
