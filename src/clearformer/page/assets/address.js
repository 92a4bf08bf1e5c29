// Addresses: decoder.2.cross.h3.weights[4,7] names one number of one run, here as in Python.

const SHAPE = /^([^[\]]+?)(?:\[(.*)\])?$/s;

/** @typedef {{name: string, head: [string, number] | null, cells: number[]}} Address */

/** @returns {Address | null} null where the text is no address of numbers. */
export function parse(text) {
  const found = SHAPE.exec((text ?? "").trim());
  if (!found) return null;
  let head = null;
  const words = [];
  for (const word of found[1].replaceAll(" ", "").split(".")) {
    const numbered = /^([hg])(\d+)$/.exec(word);
    if (numbered) head = [numbered[1], Number(numbered[2])];
    else words.push(word);
  }
  const cells = found[2]?.trim() ? found[2].split(",").map((cell) => (cell.trim() === "" ? NaN : Number(cell))) : [];
  if (cells.some((cell) => !Number.isInteger(cell) || cell < 0)) return null;
  return { name: words.join("."), head, cells };
}

/** The text of an address; a head stands in front of the step, or behind the name of an attention. */
export function write({ name, head = null, cells = [] }, isStep = true) {
  let words = name.split(".");
  if (head) {
    const at = isStep ? words.length - 1 : words.length;
    words = [...words.slice(0, at), head.join(""), ...words.slice(at)];
  }
  return words.join(".") + (cells.length ? `[${cells.join(",")}]` : "");
}

/** stack.0.self.weights → stack.0.self */
export const owner = (name) => name.split(".").slice(0, -1).join(".");
/** stack.0.self.weights → weights */
export const last = (name) => name.split(".").at(-1);
