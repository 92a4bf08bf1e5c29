// What there is in a run, read off the listing of its addresses: stacks, blocks, branches, attentions, steps.
// Nothing here knows a family of models: a part that is new shows up as its addresses do.
import { last, owner, parse, write } from "page/address.js";

/** @typedef {"model"|"layer"|"part"|"attention"|"head"|"tensor"|"row"|"cell"} Level */

export class Listing {
  constructor(data) {
    this.data = data;
    this.run = data.run ?? {};
    this.facts = data.facts ?? { attentions: {}, stacks: [] };
    this.steps = new Map(data.addresses.map((step) => [step.address, step]));
    this.groups = new Map(); // stack.0.self → its steps, in the order they ran
    for (const step of data.addresses) {
      const own = owner(step.address);
      if (!this.groups.has(own)) this.groups.set(own, []);
      this.groups.get(own).push(step);
    }
    this.parameters = new Set(data.addresses.flatMap((step) => step.operands).filter((name) => !this.steps.has(name)));
    for (const name of Object.keys(data.inputs ?? {})) this.parameters.add(name);
  }

  step = (name) => this.steps.get(name);

  /** Whether a group is an attention: it has weights of queries on keys. */
  isAttention = (group) => this.steps.has(`${group}.weights`) && this.steps.has(`${group}.q`);

  /** stack.3 for stack.3.self */
  block(group) {
    const found = /^(.*?\.\d+)(?:\.|$)/.exec(group);
    return found ? found[1] : null;
  }

  /** Stacks in order: their blocks, each with its branches, and what stands before and behind. */
  get stacks() {
    const found = new Map();
    for (const group of this.groups.keys()) {
      const [name] = group.split(".");
      if (!found.has(name)) found.set(name, { name, before: [], blocks: new Map(), after: [] });
      const stack = found.get(name);
      const block = this.block(group);
      if (block) {
        if (!stack.blocks.has(block)) stack.blocks.set(block, []);
        stack.blocks.get(block).push(group);
      } else (stack.blocks.size ? stack.after : stack.before).push(group);
    }
    return [...found.values()];
  }

  /** How many heads of queries and of keys an attention has. */
  heads(group) {
    const size = (step, axis) => step?.shape[step.axes.indexOf(axis)] ?? 0;
    const queries = size(this.step(`${group}.weights`), "h");
    return { queries, keys: size(this.step(`${group}.k`), "g") || queries };
  }

  /** The axes that brackets count, once a head is named. */
  open(step, head) {
    return step.axes
      .map((axis, n) => ({ axis, size: step.shape[n], name: step.names[n] }))
      .filter(({ axis }) => !(head && (axis === head[0] || axis === "h" || axis === "g")));
  }

  /** The words along an axis of a step, where it has any. */
  words(step, axis) {
    return this.data.words[step?.words?.[axis]] ?? null;
  }

  /**
   * What an address shows.
   * @returns {{level: Level, group?: string, step?: object, head?: [string, number] | null, cells?: number[]} | null}
   */
  place(text) {
    if (!text) return { level: "model", cells: [], head: null };
    const where = parse(text);
    if (!where) return null;
    const { name, head, cells } = where;
    const step = this.step(name);
    if (step) return this.#inStep(step, name, head, cells);
    if (this.parameters.has(name))
      return { level: "tensor", name, group: this.home(name), parameter: true, head, cells };
    if (cells.length) return null;
    if (this.isAttention(name)) {
      if (!head) return { level: "attention", group: name, head: null, cells };
      return head[1] < this.heads(name)[head[0] === "g" ? "keys" : "queries"]
        ? { level: "head", group: name, head, cells }
        : null;
    }
    if (head) return null;
    if (this.groups.has(name)) return { level: "part", group: name, head: null, cells };
    if ([...this.groups.keys()].some((group) => this.block(group) === name))
      return { level: "layer", block: name, head: null, cells };
    if ([...this.groups.keys()].some((group) => group.startsWith(`${name}.`)))
      return { level: "model", stack: name, head: null, cells };
    return null;
  }

  #inStep(step, name, head, cells) {
    const group = owner(name);
    const heads = step.axes.findIndex((axis) => axis === "h" || axis === "g");
    if (
      head &&
      (heads < 0 || head[1] >= (head[0] === "h" ? this.heads(group).queries || step.shape[heads] : step.shape[heads]))
    )
      return null;
    const open = this.open(step, head);
    if (cells.length > open.length || cells.some((cell, n) => cell >= open[n].size)) return null;
    const found = { group, step, name, head, cells, open };
    if (cells.length === open.length) return { level: "cell", ...found };
    const ofKeys =
      this.isAttention(group) &&
      step.axes.includes("t") &&
      step.axes.length === 3 &&
      ["weights", "scores"].includes(last(name));
    return { level: ofKeys && head && cells.length === 1 ? "row" : "tensor", ...found };
  }

  /** The nearest group above a name. */
  home(name) {
    for (let own = owner(name); own; own = owner(own)) if (this.groups.has(own)) return own;
    return "";
  }

  /** One level up. */
  up(text) {
    const place = this.place(text);
    if (!place || place.level === "model") return "";
    const { level, group, name, head, cells, step } = place;
    if (level === "layer") return "";
    if (level === "part" || level === "attention") return this.block(group) ?? "";
    if (level === "head") return group;
    if (
      level === "cell" &&
      step &&
      this.isAttention(group) &&
      head &&
      ["weights", "scores"].includes(last(name)) &&
      cells.length === 2
    )
      return write({ name, head, cells: cells.slice(0, 1) });
    if (cells.length && level !== "row") return write({ name, head });
    if (head && this.isAttention(group)) return write({ name: group, head }, false);
    return group;
  }

  /** From the model down to an address, each with its name. */
  trail(text) {
    const found = [];
    for (let at = text; at; at = this.up(at)) found.unshift(at);
    return ["", ...found];
  }

  /** The nearest place that exists. */
  nearest(text) {
    let at = (text ?? "").trim();
    while (at) {
      if (this.place(at)) return at;
      if (at.endsWith("]")) at = at.slice(0, at.lastIndexOf("["));
      else at = at.includes(".") ? at.slice(0, at.lastIndexOf(".")) : "";
    }
    return "";
  }

  /** Where a step of decoding is on the axis of positions. */
  position(step) {
    const before = (this.run.read?.length ?? 1) - 1;
    return before + step;
  }

  /** The stack whose stream becomes the answer. */
  get writer() {
    return this.stacks.find((stack) => stack.name === "decoder")?.name ?? "stack";
  }
}
