// What lessons ask of the server. Where it does not answer they say so, and the panels that need none go on.
import { useEffect, useState } from "preact/hooks";
import { access } from "page/access.js";
import { root } from "page/state.js";
import { html } from "page/ui.js";

export const OFFLINE = "This part needs a model that runs: start it with `clearformer look --lesson`.";

/** The source that runs are opened with: the page's own, whatever run it shows. */
const runs = (source) => root.value ?? source;

async function asked(source, path, options = {}) {
  if (!runs(source)?.live) throw new Error(OFFLINE);
  const headers = { ...(options.headers ?? {}), ...(access.value ? { Authorization: `Bearer ${access.value}` } : {}) };
  let answer;
  try {
    answer = await fetch(path, { ...options, headers });
  } catch {
    throw new Error("The server does not answer; what is here goes on without it.");
  }
  const said = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(typeof said.error === "string" ? said.error : `the server said ${answer.status}`);
  return said;
}

export const post = (source, path, body) =>
  asked(source, path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });

/** A run of a model: a source for its numbers. Kept, so that going back and forth asks for nothing twice. */
export function trace(source, body) {
  if (!runs(source)?.live) return Promise.reject(new Error(OFFLINE));
  return once(`trace ${JSON.stringify(body)}`, () => runs(source).open(body));
}

const kept = new Map();
/** Asked once a page; what failed is asked again. */
export function once(key, make) {
  if (!kept.has(key)) {
    const made = make();
    kept.set(key, made);
    made.catch(() => kept.delete(key));
  }
  return kept.get(key);
}

export const models = (source) => once("models", () => asked(source, "models"));
export const lesson = (source, name) => once(`lesson ${name}`, () => asked(source, `lessons/${name}`));

/** {value}, {error}, or {waiting: true, old}. Made anew when keys change; what comes too late is dropped. */
export function useAsked(make, keys) {
  const [found, set] = useState({ waiting: true });
  useEffect(() => {
    let mine = true;
    set((before) => ({ waiting: true, old: before.value ?? before.old }));
    Promise.resolve().then(make).then((value) => mine && set({ value }), (error) => mine && set({ error }));
    return () => (mine = false);
  }, keys);
  return found;
}

export const State = ({ of, what }) =>
  of.error ? html`<p class="ls-problem" role="status">${of.error.message}</p>` : of.waiting ? html`<p class="ls-waiting" role="status">${what} …</p>` : null;

/** A model for a lesson, chosen by the reader; the first that fits, at first. */
export function useModel(source, fits) {
  const listed = useAsked(() => models(source), [runs(source)?.live]);
  const [name, choose] = useState("");
  const some = (listed.value ?? []).filter(fits);
  const model = some.find((each) => each.name === name) ?? some[0] ?? null;
  const none = listed.value && !model ? { error: new Error("No model of this kind is served; `clearformer look --lesson` serves the bundled ones.") } : listed;
  return { model, some, choose, state: model ? {} : none };
}
