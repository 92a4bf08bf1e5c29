// Where numbers come from: a server, or the data inside an exported file. Both answer the same two questions,
//   await source.ask(question, asked)  → JSON
//   await source.tensor(address)       → {address, axes, names, shape, words, starts, operands, values: Float32Array}
// and keep what they were told. Errors are SourceErrors with a message for people.
import { owner, parse, write } from "page/address.js";

export class SourceError extends Error {
  /** @param {{missing?: boolean, gone?: boolean, forgotten?: boolean, locked?: boolean}} about */
  constructor(message, about = {}) {
    super(message);
    Object.assign(this, about);
  }
}

/** The axes, names and words of a tensor, as the listing says them. */
export function described(listing, address, shape, axes) {
  const { name, cells = [] } = parse(address) ?? {};
  const step = listing?.addresses.find((each) => each.address === name) ?? listing?.inputs?.[name];
  const words = {};
  const starts = axes.map(() => 0);
  axes.forEach((axis, n) => {
    const said = listing?.words[step?.words?.[axis]];
    if (said?.length === shape[n]) words[axis] = said;
  });
  const names = axes.map((axis) => step?.names?.[step.axes.indexOf(axis)] ?? axis);
  return { address, axes, shape, names, words, starts, operands: step?.operands ?? [], cells };
}

/** What is left of a tensor behind a head and cells. */
export function sliced({ axes, shape, values }, { head, cells }, queries) {
  let from = 0,
    size = values.length;
  const left = [];
  let given = 0;
  axes.forEach((axis, n) => {
    const each = size / shape[n];
    let at = null;
    if (head && (axis === "h" || axis === "g"))
      at = head[0] === "h" && axis === "g" ? Math.floor((head[1] * shape[n]) / queries) : head[1];
    else if (given < cells.length) at = cells[given++];
    if (at === null) return left.push(n);
    if (left.length) throw new SourceError("cells behind an open axis are not cut out of a file");
    from += at * each;
    size = each;
  });
  return {
    axes: left.map((n) => axes[n]),
    shape: left.map((n) => shape[n]),
    values: values.subarray(from, from + size),
  };
}

const MOST = 256 * 2 ** 20; // bytes of numbers that are kept

/** Answers that were given are kept, the last ones; those that failed are asked again. */
function keeping(most = 400) {
  const kept = new Map();
  const sizes = new Map();
  let total = 0;
  const drop = (key) => {
    kept.delete(key);
    total -= sizes.get(key) ?? 0;
    sizes.delete(key);
  };
  const trim = () => {
    while (kept.size > most || (total > MOST && kept.size > 1)) drop(kept.keys().next().value);
  };
  const keep = (key, make) => {
    if (kept.has(key)) {
      const found = kept.get(key);
      kept.delete(key);
      kept.set(key, found);
      return found;
    }
    const made = make();
    kept.set(key, made);
    made.then(
      (found) => {
        if (kept.get(key) !== made) return;
        sizes.set(key, found?.values?.byteLength ?? 0);
        total += sizes.get(key);
        trim();
      },
      () => drop(key),
    );
    trim();
    return made;
  };
  return Object.assign(keep, { has: (key) => kept.has(key) });
}

export function httpSource(base = "", key = () => "") {
  async function fetched(path, options = {}) {
    const headers = { ...(options.headers ?? {}) };
    if (key()) headers.Authorization = `Bearer ${key()}`;
    let answer;
    try {
      answer = await fetch(base + path, { ...options, headers });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new SourceError("The server does not answer. What was loaded stays here.", { gone: true });
    }
    if (answer.ok) return answer;
    let said = {};
    try {
      said = await answer.json();
    } catch {
      /* no JSON: the status has to do */
    }
    const message =
      typeof said.error === "string" ? said.error : (said.error?.message ?? `the server said ${answer.status}`);
    throw new SourceError(message, {
      missing: answer.status === 404,
      forgotten: answer.status === 404 && message.includes("no trace is called"),
      locked: answer.status === 401,
    });
  }
  const json = async (path, options) => (await fetched(path, options)).json();

  /** A source for one trace; `listing` is what POST /trace answered. */
  function of(listing, again) {
    const keep = keeping();
    let id = listing?.id;
    /** A server forgets old traces: then the same is traced once more. */
    async function about(question, asked, read) {
      const query = new URLSearchParams(asked);
      const path = () => `/trace/${id}/${question}${query.size ? `?${query}` : ""}`;
      try {
        return await read(path());
      } catch (error) {
        if (!error.forgotten || !again) throw error;
        id = (await again()).id;
        return read(path());
      }
    }
    const tensor = (address) => keep(`tensor ${address}`, () => part(address) ?? whole(address));
    const whole = (address) =>
      about("tensor", { address, format: "float32" }, async (path) => {
        const answer = await fetched(path);
        const said = (name) =>
          (answer.headers.get(name) ?? "")
            .split(",")
            .map((x) => x.trim())
            .filter(Boolean);
        const values = new Float32Array(await answer.arrayBuffer());
        return { ...described(listing, address, said("x-shape").map(Number), said("x-axes")), values };
      });
    /** A tensor that is part of one that is here: nothing is asked for. */
    function part(address) {
      const where = parse(address);
      if (!where || !(where.head || where.cells.length)) return null;
      const { name, head, cells } = where;
      const larger = [write({ name }), write({ name, head })].find(
        (each) => each !== address && keep.has(`tensor ${each}`),
      );
      if (!larger) return null;
      const left = larger === name ? where : { head: null, cells };
      const queries = listing?.facts?.attentions?.[owner(name)]?.heads ?? 1;
      return tensor(larger).then((found) => {
        const cut = sliced(found, left, queries);
        return { ...described(listing, address, cut.shape, cut.axes), values: cut.values };
      });
    }
    return {
      live: true,
      get id() {
        return id;
      },
      listing,
      models: () => json("/models"),
      /** Trace anew: a source for what came out. */
      open: async (body, signal) => {
        const asked = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
        const make = (more) => json("/trace", { ...asked, ...more });
        return of(await make({ signal }), () => make());
      },
      ask: (question, asked = {}) =>
        keep(`${question} ${JSON.stringify(asked)}`, () =>
          question === "models" ? json("/models") : about(question, asked, (path) => json(path)),
        ),
      tensor,
      /** A picture of a tensor that is too large to be sent for one. */
      pooled: (address, most) =>
        keep(`pooled ${most} ${address}`, () =>
          about("pooled", { address, top: most }, async (path) => {
            const found = await json(path);
            const bytes = Uint8Array.from(atob(found.float32), (sign) => sign.charCodeAt(0));
            return { ...found, values: new Float32Array(bytes.buffer) };
          }),
        ),
      exportUrl: () => `${base}/trace/${id}/export`,
      exported: async () => (await fetched(`/trace/${id}/export`)).blob(),
    };
  }
  return of(null, null);
}
