// The fragment of the URL holds everything one looks at: #model=…&text=…&a=ADDRESS&v=VIEW. Sharing is copying it.
import { signal } from "@preact/signals";

/** What belongs to the request for a trace; all else is only how it is looked at. */
export const ASKED = [
  "model",
  "text",
  "pair",
  "ids",
  "to",
  "verb",
  "target",
  "t",
  "go",
  "beams",
  "temp",
  "seed",
  "max",
  "x",
];

const readable = (text) =>
  encodeURIComponent(text).replace(/%(5B|5D|2C|3A|2F|3F|27|20)/g, (sign) =>
    sign === "%20" ? "+" : decodeURIComponent(sign),
  );

export function read(fragment) {
  const found = {};
  for (const part of fragment.replace(/^#/, "").split("&")) {
    if (!part) continue;
    const at = part.indexOf("=");
    const name = at < 0 ? part : part.slice(0, at);
    try {
      found[name] = at < 0 ? "" : decodeURIComponent(part.slice(at + 1).replaceAll("+", " "));
    } catch {
      found[name] = part.slice(at + 1); // a broken escape stays as it is
    }
  }
  return found;
}

export const written = (route) =>
  "#" +
  Object.entries(route)
    .filter(([name, value]) => value != null && (value !== "" || name === "lesson" || name === "target"))
    .map(([name, value]) => `${name}=${readable(String(value))}`)
    .join("&");

export const route = signal(read(location.hash));
let seen = location.hash;
/** The URL is ahead of the page until its event comes; what is done in between means what the URL says. */
function follow() {
  if (location.hash === seen) return;
  seen = location.hash;
  route.value = read(seen);
}
addEventListener("hashchange", follow);
for (const kind of ["keydown", "click"]) addEventListener(kind, follow, true);

/** The link that changes some of what is looked at. */
export const link = (patch) => written({ ...route.value, ...patch });
/** Where an address is shown. */
export const to = (address, more = {}) => link({ a: address, v: null, lesson: null, k: null, ...more });

export function go(patch, replace = false) {
  follow();
  const next = link(patch);
  if (next === location.hash) return;
  if (replace) history.replaceState(null, "", next);
  else location.hash = next;
  follow();
}

const number = (text) => (text === undefined || text === "" || Number.isNaN(Number(text)) ? undefined : Number(text));
const whole = (text) =>
  text
    .split(/[\s,]+/)
    .filter(Boolean)
    .map(Number);

/** The body of POST /trace. Images do not fit into a URL and are handed over. */
export function body(asked, image) {
  const options = {
    num_beams: number(asked.beams),
    temperature: number(asked.temp),
    seed: number(asked.seed),
    max_new_tokens: number(asked.max),
  };
  if (options.temperature > 0) options.do_sample = true;
  const found = {
    model: asked.model,
    pair: asked.pair || undefined,
    to: asked.to || undefined,
    verb: asked.verb || undefined,
    top: 8,
  };
  if (image) found.image = image;
  else if (asked.ids) found.ids = whole(asked.ids);
  else found.text = asked.text ?? "";
  if (asked.t) found.target_ids = whole(asked.t);
  else if (asked.target !== undefined) found.target = asked.target;
  if (asked.go) found.continue = true;
  for (const name in options) if (options[name] === undefined) delete options[name];
  if (Object.keys(options).length) found.options = options;
  if (asked.x) found.change = JSON.parse(asked.x);
  return found;
}
