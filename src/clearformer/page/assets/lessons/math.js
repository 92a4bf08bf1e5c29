// The arithmetic of the lessons, in double precision. A matrix is a list of rows.

export const matmul = (a, b) => a.map((row) => b[0].map((_, c) => row.reduce((sum, x, k) => sum + x * b[k][c], 0)));
export const transpose = (a) => a[0].map((_, c) => a.map((row) => row[c]));
export const map = (a, f) => a.map((row, r) => row.map((x, c) => f(x, r, c)));
export const identity = (n) => Array.from({ length: n }, (_, r) => Array.from({ length: n }, (_, c) => Number(r === c)));
export const dot = (a, b) => a.reduce((sum, x, n) => sum + x * b[n], 0);
export const sum = (list) => list.reduce((a, b) => a + b, 0);
export const mean = (list) => sum(list) / list.length;
export const variance = (list) => {
  const middle = mean(list);
  return mean(list.map((x) => (x - middle) ** 2));
};
export const cosine = (a, b) => dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b));

/** Of one row; −∞ gets no weight. A row of −∞ alone has no softmax. */
export function softmax(row) {
  const most = Math.max(...row);
  if (most === -Infinity) return row.map(() => NaN);
  const raised = row.map((x) => Math.exp(x - most));
  const total = sum(raised);
  return raised.map((x) => x / total);
}

/** In bits. */
export const entropy = (weights) => -sum(weights.map((w) => (w > 0 ? w * Math.log2(w) : 0)));

/** softmax(Q Kᵀ / divisor + mask) V with every step; `hidden(q, k)` says what is masked. */
export function attention({ q, k, v, divisor = 1, hidden = () => false }) {
  const scores = matmul(q, transpose(k));
  const scaled = map(scores, (x) => x / divisor);
  const masked = map(scaled, (x, r, c) => (hidden(r, c) ? -Infinity : x));
  const weights = masked.map(softmax);
  return { scores, scaled, masked, weights, mixed: matmul(weights, v) };
}

/** PE(position), `width` numbers: sines at the even places, cosines at the odd ones. */
export const encoding = (position, width) =>
  Array.from({ length: width }, (_, n) => {
    const angle = position / 10000 ** ((n - (n % 2)) / width);
    return n % 2 ? Math.cos(angle) : Math.sin(angle);
  });

/** Numbers from the normal distribution, the same for the same seed. */
export function normals(seed) {
  let state = seed >>> 0;
  const uniform = () => {
    state = (state + 0x6d2b79f5) >>> 0; // mulberry32
    let x = Math.imul(state ^ (state >>> 15), state | 1);
    x ^= x + Math.imul(x ^ (x >>> 7), x | 61);
    return ((x ^ (x >>> 14)) >>> 0) / 4294967296;
  };
  let spare = null;
  return () => {
    if (spare !== null) {
      const kept = spare;
      spare = null;
      return kept;
    }
    const radius = Math.sqrt(-2 * Math.log(1 - uniform()));
    const angle = 2 * Math.PI * uniform();
    spare = radius * Math.sin(angle);
    return radius * Math.cos(angle);
  };
}

/** The two directions in which some vectors differ most, and where each vector lies on them (PCA by Jacobi rotations). */
export function flat(vectors) {
  const middle = vectors[0].map((_, n) => mean(vectors.map((each) => each[n])));
  const centred = vectors.map((each) => each.map((x, n) => x - middle[n]));
  const a = centred.map((one) => centred.map((other) => dot(one, other)));
  const size = a.length;
  const own = identity(size);
  for (let round = 0; round < 50 * size; round++) {
    let [p, q, most] = [0, 1, 0];
    for (let r = 0; r < size; r++) for (let c = r + 1; c < size; c++) if (Math.abs(a[r][c]) > most) [p, q, most] = [r, c, Math.abs(a[r][c])];
    if (most < 1e-12) break;
    const angle = 0.5 * Math.atan2(2 * a[p][q], a[q][q] - a[p][p]);
    const [c, s] = [Math.cos(angle), Math.sin(angle)];
    for (const m of [a, own]) for (let n = 0; n < size; n++) [m[n][p], m[n][q]] = [c * m[n][p] - s * m[n][q], s * m[n][p] + c * m[n][q]];
    for (let n = 0; n < size; n++) [a[p][n], a[q][n]] = [c * a[p][n] - s * a[q][n], s * a[p][n] + c * a[q][n]];
  }
  const order = a.map((_, n) => n).sort((x, y) => a[y][y] - a[x][x]);
  const total = sum(a.map((_, n) => Math.max(0, a[n][n]))) || 1;
  const axis = (n) => own.map((row) => row[order[n]] * Math.sqrt(Math.max(0, a[order[n]][order[n]])));
  const [x, y] = [axis(0), size > 1 ? axis(1) : vectors.map(() => 0)];
  const shown = order.slice(0, 2).map((n) => Math.max(0, a[n][n]) / total);
  return { points: x.map((each, n) => [each, y[n]]), shown };
}

/** A 32-bit hash, as the core draws random keys with it. */
function mixed(x) {
  for (const factor of [0x7feb352d, 0x846ca68b, 0x9e3779b1]) x = Math.imul(x ^ (x >>> 16), factor) >>> 0;
  return (x ^ (x >>> 15)) >>> 0;
}

/** Pairs that BigBird computes, counted: a window, the first words, and blocks of keys drawn for each block of queries. */
export function bigbird(n, { block = 16, radius = 24, count = 3, first = 2, seed = 0 } = {}) {
  let pairs = 0;
  for (let start = 0; start < n; start += block) {
    const at = start / block;
    const drawn = Array.from({ length: count }, (_, d) => (mixed((mixed(mixed(at + 1) ^ (d + 1)) ^ seed) >>> 0) % (2 * at + 2)) * block);
    for (let i = start; i < Math.min(n, start + block); i++) {
      if (i < first) {
        pairs += n;
        continue;
      }
      const spans = [[0, first], [i - radius, i + radius + 1], ...drawn.map((from) => [from, from + block])].sort((a, b) => a[0] - b[0]);
      let end = 0;
      for (const [from, to] of spans) {
        const [low, high] = [Math.max(from, end), Math.min(to, n)];
        if (high > low) {
          pairs += high - low;
          end = high;
        }
      }
    }
  }
  return pairs;
}

/** Pairs within a radius. */
export const near = (n, radius = 24) => {
  const r = Math.min(radius, n - 1);
  return n * (2 * r + 1) - r * (r + 1);
};
