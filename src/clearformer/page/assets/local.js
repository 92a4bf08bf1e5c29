// Explanations where there is no server: of the steps that need no matrices, from the numbers in the file.
import { last, owner, parse, write } from "page/address.js";
import { spoken } from "page/format.js";

const number = (address, value) => ({ kind: "number", address, value });
const apply = (sign, parts, value) => ({ kind: "apply", sign, parts, value });

export async function explain(source, listing, address, missing) {
  const where = parse(address);
  const step = where && listing.addresses.find((each) => each.address === where.name);
  const value = (await source.tensor(address)).values[0];
  const found = {
    address,
    value,
    place: step ? placed(listing, step, where) : [],
    changed: step?.changed ?? false,
    expression: null,
  };
  if (!step || found.changed) return found;
  const expression = await made(source, listing, step, where);
  if (!expression) throw missing(`the arithmetic of ${address}`);
  return { ...found, expression: { ...expression, value } };
}

function placed(listing, step, { head, cells }) {
  const open = step.axes
    .map((axis, n) => ({ axis, name: step.names[n] }))
    .filter(({ axis }) => !(head && (axis === "h" || axis === "g")));
  return [
    ...(head ? [`${head[0] === "h" ? "head" : "key head"} ${head[1]}`] : []),
    ...cells.map((cell, n) => spoken(open[n].name, cell, listing.words[step.words[open[n].axis]])),
  ];
}

async function made(source, listing, step, { name, head, cells }) {
  const own = owner(name);
  const at = (other, at) => write({ name: `${own}.${other}`, head, cells: at });
  const numbers = async (other, at_) => (await source.tensor(at(other, at_))).values;
  const has = (other) => listing.addresses.some((each) => each.address === `${own}.${other}`);
  const about = listing.facts.attentions?.[own];
  const how = source.made(name);
  const one = async (other, its) => {
    const cell = write({ name: other, cells: its });
    return number(cell, (await source.tensor(cell)).values[0]);
  };
  switch (last(name)) {
    case "weights": {
      if (!head) return null;
      const seen =
        about?.pattern === "everyone" || about?.compressed
          ? null
          : (await source.ask("visible", { address: own })).rows[cells[0]];
      if (seen?.[cells[1]] === "0") return { kind: "masked" };
      const row = await numbers("scores", cells.slice(0, 1));
      return {
        kind: "softmax",
        place: cells[1],
        row: Array.from(row, (each, n) =>
          seen?.[n] === "0" ? { kind: "masked", value: 0 } : number(at("scores", [cells[0], n]), each),
        ),
      };
    }
    case "scores": {
      if (!head || !about) return null;
      const keys = has("short_k") ? "short_k" : "k";
      const [q, k] = [await numbers("q", [cells[0]]), await numbers(keys, [cells[1]])];
      const pairs = Array.from(q, (each, n) => [
        number(at("q", [cells[0], n]), each),
        number(at(keys, [cells[1], n]), k[n]),
      ]);
      const sum = pairs.reduce((total, [a, b]) => total + a.value * b.value, 0);
      let whole = { kind: "products", pairs, bias: null, value: sum };
      if (about.scale !== 1) whole = apply("·", [whole, { kind: "constant", value: about.scale }], sum * about.scale);
      return has("bias") ? apply("+", [whole, number(at("bias", cells), (await numbers("bias", cells))[0])], 0) : whole;
    }
    case "mixed": {
      if (!head || has("mixture")) return null;
      const from = has("short_v") ? "short_v" : "v";
      const weights = await numbers("weights", cells.slice(0, 1));
      const wide = (await source.tensor(at(from, []))).shape[1];
      const values = (await source.tensor(at(from, []))).values;
      return {
        kind: "products",
        bias: null,
        pairs: Array.from(weights, (each, n) => [
          number(at("weights", [cells[0], n]), each),
          number(at(from, [n, cells[1]]), values[n * wide + cells[1]]),
        ]),
      };
    }
    case "active":
      return how?.relu ? apply("relu", [await one(how.relu, cells)], 0) : null;
    case "merged":
      return how?.turned ? ofHead(source, how.turned, cells) : null;
    case "before":
    case "between":
    case "after":
    case "final":
    case "norm":
      return how?.norm ? normed(source, how, cells, one) : null;
    case "sum":
    case "placed": {
      if (step.operands.length !== 2) return null;
      return apply("+", await Promise.all(step.operands.map((each) => one(each, cells))), 0);
    }
  }
  return null;
}

/** A number of the vector of heads side by side: it is one of a head. */
async function ofHead(source, name, [t, channel]) {
  const wide = (await source.tensor(name)).shape.at(-1);
  const at = write({ name, head: ["h", Math.floor(channel / wide)], cells: [t, channel % wide] });
  return number(at, (await source.tensor(at)).values[0]);
}

async function normed(source, { norm: [x, ...parameters], eps, centred }, cells, one) {
  const before = cells.slice(0, -1);
  const place = cells.at(-1);
  const row = (await source.tensor(write({ name: x, cells: before }))).values;
  const [weight, bias] = await Promise.all(parameters.map((name) => (name ? one(name, [place]) : null)));
  const numbers = Array.from(row, (each, n) => number(write({ name: x, cells: [...before, n] }), each));
  return { kind: "norm", row: numbers, place, centred, eps, weight, bias };
}
