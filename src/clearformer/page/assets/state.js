// What the whole page knows, as signals: the source, its listing, where one is, what is pinned, what went wrong.
import { batch, computed, effect, signal } from "@preact/signals";
import { Listing } from "page/listing.js";
import { ASKED, body, go, route } from "page/route.js";

export const source = signal(null); // asks about the trace that is shown
export const root = signal(null); // the source that traces are opened with
export const models = signal([]);
export const listing = signal(null);
export const base = signal(null); // the listing before anything was changed, to compare with
export const image = signal(null); // a data: URL that was uploaded
export const busy = signal(false);
export const problem = signal(null); // {message, gone, locked}
export const said = signal(""); // for screen readers
export const notice = signal("");
export const step = signal(0); // of decoding

export const model = computed(
  () => models.value.find((each) => each.name === route.value.model) ?? models.value[0] ?? null,
);
const wanted = computed(() => (route.value.a ?? "").trim());
/** Where one is: the address of the URL, or the nearest there is. */
export const address = computed(() => (listing.value ? listing.value.nearest(wanted.value) : ""));
export const place = computed(() => listing.value?.place(address.value) ?? { level: "model", cells: [], head: null });
export const view = computed(() => route.value.v || "inside");
/** The number that the inspector shows. */
export const pinned = computed(() => {
  const given = route.value.p?.trim();
  if (given && listing.value?.place(given)) return given;
  return place.value.level === "cell" || (place.value.parameter && place.value.cells.length) ? address.value : "";
});
export const lost = computed(() => (listing.value && wanted.value !== address.value ? wanted.value : ""));

export const say = (text) => (said.value = text);
export const fail = (error) => {
  if (error?.name === "AbortError") return;
  problem.value = { message: error?.message ?? String(error), gone: error?.gone, locked: error?.locked };
};

const key = (asked) =>
  JSON.stringify([
    ...ASKED.map((name) => asked[name] ?? null),
    image.value ? image.value.length + image.value.slice(-40) : "",
  ]);
let shown = "";
let stop = null;

/** What a URL leaves out: the first model and its example. */
function filled(asked) {
  const given = { ...asked };
  const chosen = model.value;
  if (!chosen) return null;
  given.model = chosen.name;
  if (chosen.takes.includes("image")) return image.value || given.ids ? given : null;
  if (!given.text && !given.ids) {
    if (chosen.takes.includes("text")) given.text = chosen.example;
    else given.ids = chosen.example;
    if (chosen.example_pair && !given.pair) given.pair = chosen.example_pair;
  }
  return given;
}

/** Trace what the URL asks for, unless it is shown already. */
export async function run(force = false) {
  if (!root.value?.live || !models.value.length) return;
  const asked = filled(route.value);
  if (!asked) {
    batch(() => {
      listing.value = null;
      shown = "";
    });
    return;
  }
  const now = key(asked);
  if (now === shown && !force) return;
  shown = now;
  stop?.abort();
  const mine = (stop = new AbortController());
  busy.value = true;
  try {
    const opened = await root.value.open(body(asked, image.value), mine.signal);
    if (mine.signal.aborted) return;
    const found = new Listing(opened.listing);
    batch(() => {
      source.value = opened;
      if (!asked.x) base.value = { listing: found, key: key({ ...asked, x: undefined }) };
      listing.value = found;
      problem.value = null;
      step.value = Math.max(0, Math.min(Number(route.value.s ?? 0) || 0, (found.run.tokens?.length ?? 1) - 1));
    });
    if (!route.value.model || (!route.value.text && !route.value.ids)) {
      shown = now;
      go({ model: asked.model, text: asked.text, pair: asked.pair, ids: asked.ids }, true);
    }
    say(`Traced: ${found.run.text ?? "done"}`);
    if (asked.x) unchanged({ ...asked, x: undefined });
  } catch (error) {
    if (mine.signal.aborted) return;
    shown = error.gone || error.locked ? "" : now;
    fail(error);
  } finally {
    if (stop === mine) busy.value = false;
  }
}

/** The run without changes, to compare with, where it is not here yet. */
async function unchanged(asked) {
  const mine = key(asked);
  if (base.value?.key === mine) return;
  try {
    const opened = await root.value.open(body(asked, image.value));
    base.value = { listing: new Listing(opened.listing), key: mine };
  } catch (error) {
    fail(error);
  }
}

/** Follow the URL from now on. */
export function follow() {
  effect(() => {
    route.value;
    image.value;
    models.value;
    queueMicrotask(() => run());
  });
}

/** The run before changes, where one is shown with them. */
export const before = computed(() =>
  route.value.x && base.value && base.value.key === key({ ...filled(route.value), x: undefined })
    ? base.value.listing
    : null,
);

// --- how it looks: kept by the browser, where it may ---------------------------------------------------------------

function stored(name, usual) {
  try {
    return localStorage.getItem(name) ?? usual;
  } catch {
    return usual;
  }
}
export const theme = signal(stored("clearformer.theme", "auto"));
export const size = signal(stored("clearformer.size", "normal"));
export const dark = signal(false);
const prefers = matchMedia("(prefers-color-scheme: dark)");
effect(() => {
  const chosen = theme.value;
  document.documentElement.dataset.theme = chosen;
  document.documentElement.dataset.size = size.value;
  dark.value = chosen === "dark" || (chosen === "auto" && prefers.matches);
  try {
    localStorage.setItem("clearformer.theme", chosen);
    localStorage.setItem("clearformer.size", size.value);
  } catch {
    /* a file, or a browser that keeps nothing */
  }
});
prefers.addEventListener(
  "change",
  () => (dark.value = theme.value === "dark" || (theme.value === "auto" && prefers.matches)),
);
