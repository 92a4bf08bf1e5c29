// Why a query does not see a key: it comes later, or its block does not exist in this pattern.
import { useAnswer } from "page/load.js";
import { ABSENT, FUTURE } from "page/paint.js";
import { listing, source } from "page/state.js";

const made = new WeakMap(); // the marks of an answer are made once, for all heads

/** A mark for every cell of an attention's scores; null where all is seen. */
export function useMarks(group) {
  const pattern = listing.value?.facts.attentions?.[group]?.pattern;
  const [rows, cols] = listing.value?.step(`${group}.weights`)?.shape.slice(-2) ?? [];
  const known = pattern === "everyone" || (pattern === "causal" && rows === cols);
  const { value } = useAnswer(
    () => (known ? null : source.value.ask("visible", { address: group })),
    [source.value, group, known],
  );
  if (known) return pattern === "causal" ? triangle(rows) : null;
  if (!value) return null;
  if (!made.has(value)) made.set(value, marked(value.rows));
  return made.get(value);
}

let last = null;
/** The marks of a causal mask: all that comes later. */
function triangle(rows) {
  if (last?.rows !== rows) {
    const marks = new Uint8Array(rows * rows);
    for (let r = 0; r < rows; r++) marks.fill(FUTURE, r * rows + r + 1, (r + 1) * rows);
    last = { rows, marks: rows > 1 ? marks : null };
  }
  return last.marks;
}

/** Rows of "0" and "1" as marks: what comes later, where every pattern hides it, is the future. */
export function marked(rows) {
  const cols = rows[0]?.length ?? 0;
  const marks = new Uint8Array(rows.length * cols);
  let any = false;
  let causal = rows.length === cols;
  for (let r = 0; r < rows.length && causal; r++) if (rows[r].indexOf("1", r + 1) >= 0) causal = false;
  rows.forEach((row, r) => {
    for (let c = 0; c < cols; c++)
      if (row[c] === "0") {
        any = true;
        marks[r * cols + c] = causal && c > r ? FUTURE : ABSENT;
      }
  });
  return any ? marks : null;
}
