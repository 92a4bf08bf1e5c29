// The numbers of an exported file, to the bit as they were computed. `page/packing.py` says how each tensor is kept:
// as its bytes (`at`), or made of others, where a float32 may be a few steps (`by`) away from what is computed here.

async function inflated(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function fromBase64(text) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let n = 0; n < raw.length; n++) bytes[n] = raw.charCodeAt(n);
  return bytes;
}

/** Four bytes a number: the first ones of all come first, then the second ones. */
function joined(planes) {
  const count = planes.length / 4;
  const bytes = new Uint8Array(planes.length);
  for (let plane = 0; plane < 4; plane++) for (let n = 0; n < count; n++) bytes[4 * n + plane] = planes[plane * count + n];
  return bytes.buffer;
}

/** float32 as whole numbers in the same order; the way there is the way back. */
const ordered = (bits) => bits ^ ((bits >> 31) & 0x7fffffff);

function moved(near, steps) {
  const values = Float32Array.from(near);
  if (!steps) return values;
  const bits = new Int32Array(values.buffer);
  for (let n = 0; n < bits.length; n++) bits[n] = ordered((ordered(bits[n]) + steps[n]) | 0);
  return values;
}

// Sums are taken one number after the other, in double precision, as Python does.

function normed(x, width, eps, centred, weight, bias) {
  const found = new Float64Array(x.length);
  for (let row = 0; row < x.length; row += width) {
    let sum = 0;
    for (let n = 0; n < width; n++) sum += x[row + n];
    const mean = centred ? sum / width : 0;
    let squares = 0;
    for (let n = 0; n < width; n++) squares += (x[row + n] - mean) * (x[row + n] - mean);
    const root = Math.sqrt(squares / width + eps);
    for (let n = 0; n < width; n++) {
      let value = (x[row + n] - mean) / root;
      if (weight) value *= weight[n];
      if (bias) value += bias[n];
      found[row + n] = value;
    }
  }
  return found;
}

function products(q, [heads, queries, width], k, [groups, keys], scale, bias) {
  const found = new Float64Array(heads * queries * keys);
  for (let h = 0; h < heads; h++) {
    const g = Math.floor((h * groups) / heads);
    for (let t = 0; t < queries; t++)
      for (let s = 0; s < keys; s++) {
        let sum = 0;
        for (let d = 0; d < width; d++) sum += q[(h * queries + t) * width + d] * k[(g * keys + s) * width + d];
        const at = (h * queries + t) * keys + s;
        found[at] = bias ? sum * scale + bias[at] : sum * scale;
      }
  }
  return found;
}

function weighted(weights, [heads, queries, keys], v, [groups, , width]) {
  const found = new Float64Array(heads * queries * width);
  for (let h = 0; h < heads; h++) {
    const g = Math.floor((h * groups) / heads);
    for (let t = 0; t < queries; t++)
      for (let d = 0; d < width; d++) {
        let sum = 0;
        for (let s = 0; s < keys; s++) sum += weights[(h * queries + t) * keys + s] * v[(g * keys + s) * width + d];
        found[(h * queries + t) * width + d] = sum;
      }
  }
  return found;
}

/** [head, position, feature] → [position, head and feature]. */
function turned(x, [heads, positions, width]) {
  const found = new Float32Array(x.length);
  for (let h = 0; h < heads; h++)
    for (let t = 0; t < positions; t++)
      for (let d = 0; d < width; d++) found[(t * heads + h) * width + d] = x[(h * positions + t) * width + d];
  return found;
}

/** What the data of an exported file holds: `answers()` by question, and `tensor(address)`, {shape, values} or null. */
export function unpack(data) {
  const blob = fromBase64(data.blob);
  const part = ([start, end]) => inflated(blob.subarray(start, end));
  const whole = new Map();
  let said = null;

  async function made(how) {
    if (how.at) return new Float32Array(joined(await part(how.at)));
    if (how.same) return (await tensor(how.same)).values;
    if (how.sum) {
      const [a, b] = await Promise.all(how.sum.map(tensor));
      return a.values.map((value, n) => value + b.values[n]);
    }
    if (how.turned) {
      const from = await tensor(how.turned);
      return turned(from.values, from.shape);
    }
    if (how.relu) return (await tensor(how.relu)).values.map((value) => (value > 0 ? value : 0));
    const operands = await Promise.all((how.norm ?? how.scores ?? how.mixed).map((name) => (name ? tensor(name) : null)));
    const [a, b, c] = operands;
    const near = how.norm
      ? normed(a.values, a.shape.at(-1), how.eps, how.centred, b?.values, c?.values)
      : how.scores
        ? products(a.values, a.shape, b.values, b.shape, how.scale, c?.values)
        : weighted(a.values, a.shape, b.values, b.shape);
    return moved(near, how.by && new Int32Array(joined(await part(how.by))));
  }

  /** A whole tensor by its name, without a head or cells. */
  function tensor(name) {
    const how = Object.hasOwn(data.tensors, name) ? data.tensors[name] : null;
    if (!how) return Promise.resolve(null);
    if (!whole.has(name)) whole.set(name, made(how).then((values) => ({ shape: how.shape, values })));
    return whole.get(name);
  }

  return {
    tensor,
    answers: () => (said ??= part(data.answers).then((bytes) => JSON.parse(new TextDecoder().decode(bytes)))),
  };
}
