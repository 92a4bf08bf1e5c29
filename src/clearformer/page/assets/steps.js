// What each step of a model does, in a sentence and a formula. A step that is not listed is shown all the same.

const sub = (base, under) => ["msub", ["mi", base], ["mi", under]];
const eq = (...parts) => ["mrow", ...parts];
const o = (sign) => ["mo", sign];

/** step → [sentence, formula]; a branch in front, such as feedforward.out, is more exact. */
const STEPS = {
  "embed.tokens": [
    "The row of the embedding table for each token: all that the model knows of it before it has read the others.",
  ],
  "embed.positions": [
    "What is added so that the model knows where each token stands: without it, order would not matter.",
  ],
  "embed.placed": [
    "The token's row plus its position: the beginning of the residual stream.",
    eq(["mi", "x"], o("="), ["mi", "token"], o("+"), ["mi", "position"]),
  ],
  "embed.sided": ["Which of the two texts each token belongs to is added."],
  "embed.norm": ["The embedding, normed before the first block."],
  "embed.squares": ["Each square of the image as a vector: its pixels through one matrix."],
  before: [
    "The stream, normed, as this branch reads it: every position is brought to one scale.",
    eq(["mfrac", eq(["mi", "x"], o("−"), ["mi", "mean"]), ["mi", "spread"]], o("⋅"), ["mi", "weight"]),
  ],
  after: ["The stream, normed behind the sum.", eq(["mi", "norm"], o("("), ["mi", "x"], o(")"))],
  between: ["A norm inside the branch."],
  final: ["The stream, normed a last time, as the head or the decoder reads it."],
  q: ["Queries: what each position is looking for.", eq(["mi", "Q"], o("="), ["mi", "X"], sub("W", "Q"))],
  k: ["Keys: what each position offers to be found by.", eq(["mi", "K"], o("="), ["mi", "X"], sub("W", "K"))],
  v: [
    "Values: what each position hands over when it is looked at.",
    eq(["mi", "V"], o("="), ["mi", "X"], sub("W", "V")),
  ],
  short_k: ["All keys compressed into a few rows, which stand for the whole text.", eq(["mi", "E"], ["mi", "K"])],
  short_v: ["All values compressed into a few rows.", eq(["mi", "F"], ["mi", "V"])],
  bias: ["What the distance between query and key adds to the score."],
  scores: [
    "How well each query fits each key: a dot product, divided by √d so that it does not grow with the width.",
    eq(["mfrac", eq(["mi", "Q"], ["msup", ["mi", "K"], ["mi", "T"]]), ["msqrt", ["mi", "d"]]]),
  ],
  weights: [
    "The scores of a row as shares that sum to 1: how much each query takes from each key it may see.",
    eq(["mi", "softmax"], o("("), ["mi", "scores"], o("+"), ["mi", "mask"], o(")")),
  ],
  mixture: ["What the distances themselves add to the mixed values."],
  mixed: [
    "The values, each times its weight, added up: what the head brings to each position.",
    eq(["mi", "A"], ["mi", "V"]),
  ],
  merged: [
    "The heads side by side: one long vector a position.",
    eq(["mi", "concat"], o("("), sub("head", "0"), o(","), o("…"), o(")")),
  ],
  "self.out": [
    "The heads' vectors through one matrix: what this attention adds to the stream.",
    eq(["mi", "concat"], o("⋅"), sub("W", "O")),
  ],
  "cross.out": [
    "What was read from the source, through one matrix: added to the stream.",
    eq(["mi", "concat"], o("⋅"), sub("W", "O")),
  ],
  gates: ["How far each inner number is let through."],
  inner: [
    "Each position alone, through a matrix that widens it.",
    eq(["mi", "x"], sub("W", "1"), o("+"), sub("b", "1")),
  ],
  active: ["Behind the activation: what is not wanted is near 0.", eq(["mi", "f"], o("("), ["mi", "inner"], o(")"))],
  "feedforward.out": [
    "Back to the width of the stream: what the feed-forward layer adds.",
    eq(["mi", "active"], sub("W", "2"), o("+"), sub("b", "2")),
  ],
  out: ["What this branch adds to the stream."],
  sum: [
    "The stream plus what the branch added: x + f(x), so nothing is lost on the way.",
    eq(["mi", "x"], o("+"), ["mi", "f"], o("("), ["mi", "x"], o(")")),
  ],
  "head.logits": [
    "A score for every word or class; softmax makes probabilities of them.",
    eq(["mi", "x"], ["msup", ["mi", "W"], ["mi", "T"]]),
  ],
  pooled: ["One vector for the whole text."],
  vector: ["The vector of the text."],
};

const WORDS = {
  self: "self-attention",
  cross: "cross-attention",
  feedforward: "feed-forward",
  embed: "embedding",
  head: "head",
};

/** @returns {{sentence: string, formula: any}} */
export function explained(name) {
  const words = name.split(".");
  const [sentence, formula] = STEPS[words.slice(-2).join(".")] ??
    STEPS[words.at(-1)] ?? [words.length > 2 ? "A parameter of the model, learned in training." : "", null];
  return { sentence, formula };
}

/** What a branch is called. */
export const branch = (name) => WORDS[name] ?? name;

/** A short name of a place for the trail. */
export function titled(address) {
  if (!address) return "model";
  const cells = /\[.*\]$/.exec(address)?.[0] ?? "";
  const words = address.slice(0, address.length - cells.length).split(".");
  const tail = words.at(-1);
  if (/^\d+$/.test(tail)) return `${words.slice(0, -1).join(".")} block ${tail}`;
  if (/^h\d+$/.test(tail)) return `head ${tail.slice(1)}`;
  if (/^g\d+$/.test(tail)) return `key head ${tail.slice(1)}`;
  return (WORDS[tail] ?? tail) + cells;
}
