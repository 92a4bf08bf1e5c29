// Numbers and words as people read them.

/** Four decimals, or three digits of what is very small or large; never cut. */
export function number(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value === -Infinity || value <= -1e30 || value === -65504) return "−∞";
  if (value === Infinity) return "∞";
  const size = Math.abs(value);
  const text = size === 0 || (size >= 1e-3 && size < 1e5) ? value.toFixed(4) : short(value);
  return text.replaceAll("-", "−");
}

function short(value) {
  const text = Number(value.toPrecision(3)).toString();
  return text.includes("e") ? text.replace("e+", "e") : text;
}

/** Two or three digits, for the inside of a cell. */
export function brief(value) {
  if (!(Math.abs(value) < 1e30)) return "−∞";
  const size = Math.abs(value);
  const text = size >= 100 ? value.toFixed(0) : size >= 10 ? value.toFixed(1) : value.toFixed(2);
  return text.replace("-", "−").replace(/^(−?)0\./, "$1.");
}

/** With its sign. */
export const signed = (value) => (value > 0 ? "+" : "") + number(value);
/** Every digit that a float32 has. */
export const exact = (value) => (value === null ? "not a finite number" : String(value).replace("-", "−"));
export const percent = (share) =>
  (share >= 0.1 ? (100 * share).toFixed(0) : share >= 0.001 ? (100 * share).toFixed(1) : "<0.1") + " %";
export const count = (n) => n.toLocaleString("en-US").replaceAll(",", "\u202f");

const HIDDEN = /[\p{Cc}\p{Cf}\p{Cn}\p{Co}\p{Cs}\p{Zl}\p{Zp}]/gu;
const name = (sign) =>
  sign === "\u200c" || sign === "\u200d"
    ? sign
    : { "\n": "↵", "\t": "⇥" }[sign] ?? `⟨U+${sign.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`;

/** A token without what would act on the page; the sign for a space in front of it is shown as one. */
export function word(text, most = 24) {
  let marks = 0;
  let some = "";
  for (const sign of String(text ?? "").slice(0, 4 * most)) {
    if (/\p{M}/u.test(sign) && ++marks > most) continue; // a heap of combining marks stays small
    some += sign;
  }
  some = some.replace(/^[▁Ġ]/u, "␣").replace(HIDDEN, name);
  const signs = [...some];
  return signs.length > most ? signs.slice(0, most - 1).join("") + "…" : some;
}

/** What Python says of a place, with words as the page writes them. */
export const placed = (parts) => parts.map((part) => part.replace(/“[▁Ġ]/gu, "“␣").replace(HIDDEN, name));

/** A number on an axis and its word: the same everywhere. */
export const label = (n, words) => (words && n < words.length ? `${n} ${word(words[n])}` : String(n));
/** The same said aloud. */
export const spoken = (axis, n, words) => `${axis} ${n}${words && n < words.length ? ` “${word(words[n])}”` : ""}`;
