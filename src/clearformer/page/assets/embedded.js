// The data inside an exported file: it answers as a server does, as far as it holds what is asked for.
import { parse } from "page/address.js";
import { explain } from "page/local.js";
import { described, sliced, SourceError } from "page/source.js";
import { unpack } from "page/unpack.js";

export async function embeddedSource(data) {
  const file = unpack(data);
  const answers = await file.answers();
  const listing = answers.trace;
  const steps = new Map(listing.addresses.map((step) => [step.address, step]));
  const missing = (what) =>
    new SourceError(`${what} is not in this file.${data.command ? ` To see it: ${data.command}` : ""}`, {
      missing: true,
    });
  const source = {
    live: false,
    listing,
    leftOut: { list: data.left_out ?? [], notes: data.notes ?? [], command: data.command },
    async ask(question, asked = {}) {
      if (question === "explain") return explain(source, listing, asked.address, missing);
      if (question === "outputs") return { outputs: [] };
      const key = asked.address ? `${question}?address=${asked.address}` : question;
      const found =
        answers[key] ??
        (question === "ablations" && answers.ablations?.address === asked.address ? answers.ablations : undefined);
      if (found === undefined)
        throw missing(`the answer to “${question}”${asked.address ? ` for ${asked.address}` : ""}`);
      if (found.error) throw new SourceError(found.error);
      return found;
    },
    pooled: (address) => source.tensor(address), // all of it is here
    /** How a tensor is made of others, where it is. */
    made: (name) => (Object.hasOwn(data.tensors, name) ? data.tensors[name] : null),
    async tensor(address) {
      const where = parse(address);
      const step = where && steps.get(where.name);
      const found = where && (await file.tensor(where.name));
      if (!found) throw missing(address);
      const axes = step?.axes ?? found.shape.map((_, n) => String(n));
      const own = where.name.split(".").slice(0, -1).join(".");
      const cut = sliced({ axes, ...found }, where, listing.facts.attentions?.[own]?.heads ?? 1);
      return { ...described(listing, address, cut.shape, cut.axes), values: cut.values };
    },
  };
  return source;
}
