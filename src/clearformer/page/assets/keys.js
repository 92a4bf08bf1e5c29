// Keys that work everywhere. Arrows and Enter inside a heat map are its own (heatmap.js).
import { go, route } from "page/route.js";
import { address, listing, step, view } from "page/state.js";
import { helping } from "page/help.js";

export const KEYS = [
  ["?", "this help"],
  ["/", "to the text"],
  ["Tab", "to the next thing that can be used"],
  ["← → ↑ ↓", "move inside a heat map"],
  ["Home, End, Page ↑ ↓", "to the ends of a row, up and down in large steps"],
  ["Enter", "deeper: model → block → attention → head → row → cell → what it was computed from"],
  ["Esc", "back up, one level at a time"],
  ["[ ]", "the step of decoding before, the next one"],
  ["0 – 7", "views: inside, lens, who wrote, without a head, compare, carried, head labels, why this score"],
  ["m", "to the whole model"],
];
const VIEWS = [null, "lens", "wrote", "ablations", "compare", "carried", "heads", "score"];

export function listen() {
  addEventListener("pointerdown", () => delete document.documentElement.dataset.keys, true);
  addEventListener("keydown", (event) => {
    document.documentElement.dataset.keys = "yes";
    const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") return escape(event, typing);
    if (typing) return;
    const all = listing.value;
    if (event.key === "?") helping.value = !helping.value;
    else if (event.key === "/") document.getElementById("text")?.focus();
    else if (event.key === "m" && all) go({ a: null, v: null, p: null, k: null });
    else if (/^[0-7]$/.test(event.key) && all) go({ v: VIEWS[Number(event.key)] });
    else if ((event.key === "[" || event.key === "]") && all?.run.tokens)
      step.value = Math.max(0, Math.min(all.run.tokens.length - 1, step.value + (event.key === "]" ? 1 : -1)));
    else return;
    event.preventDefault();
  });
}

function escape(event, typing) {
  if (helping.value) {
    helping.value = false;
    return;
  }
  if (typing) return event.target.blur();
  if (route.value.lesson !== undefined) return go({ lesson: null });
  if (view.value !== "inside") return go({ v: null });
  if (listing.value && address.value) go({ a: listing.value.up(address.value), p: null, k: null });
}
