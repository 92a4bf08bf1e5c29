// Heat maps on a canvas: one pixel a cell in a small picture, drawn large without smoothing; hatches for what is hidden.
import { level, ink } from "page/colour.js";
import { brief } from "page/format.js";

export const SEEN = 0,
  FUTURE = 1,
  ABSENT = 2,
  PADDING = 3; // marks of cells: why a query does not see a key

/** The colours of a range of cells, at most `wide` × `high` of them: more cells are pooled, the largest counts. */
export function picture({ values, cols, scale, marks }, rows, columns, wide, high) {
  const [top, bottom] = rows;
  const [left, right] = columns;
  const width = Math.max(1, Math.min(right - left, wide));
  const height = Math.max(1, Math.min(bottom - top, high));
  const pixels = new ImageData(width, height);
  const pooled = width < right - left || height < bottom - top;
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      let at = (top + y) * cols + left + x;
      if (pooled)
        at = loudest(values, cols, top, left, y, x, (bottom - top) / height, (right - left) / width, bottom, right);
      const n = 3 * level(scale, values[at]);
      const to = 4 * (y * width + x);
      pixels.data[to] = scale.ramp[n];
      pixels.data[to + 1] = scale.ramp[n + 1];
      pixels.data[to + 2] = scale.ramp[n + 2];
      pixels.data[to + 3] = marks && marks[at] ? 0 : 255;
    }
  }
  return pixels;
}

function loudest(values, cols, top, left, y, x, tall, wide, bottom, right) {
  let best = -1;
  let found = (top + Math.floor(y * tall)) * cols + left + Math.floor(x * wide);
  const until = Math.min(top + Math.ceil((y + 1) * tall), bottom);
  const end = Math.min(left + Math.ceil((x + 1) * wide), right);
  for (let r = top + Math.floor(y * tall); r < until; r++)
    for (let c = left + Math.floor(x * wide); c < end; c++) {
      const size = Math.abs(values[r * cols + c]);
      if (size > best) {
        best = size;
        found = r * cols + c;
      }
    }
  return found;
}

let pool = null;
/** Draw a range of cells into a rectangle of the canvas. */
export function cells(context, map, rows, columns, x, y, wide, high) {
  const ratio = context.getTransform().a;
  const pixels = picture(map, rows, columns, Math.ceil(wide * ratio), Math.ceil(high * ratio));
  pool ??= document.createElement("canvas");
  pool.width = pixels.width;
  pool.height = pixels.height;
  pool.getContext("2d").putImageData(pixels, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(pool, x, y, wide, high);
  if (map.marks)
    hidden(context, map, rows, columns, x, y, wide / (columns[1] - columns[0]), high / (rows[1] - rows[0]));
}

const hatches = new Map();
/** What a query may not see: strokes one way for the future, crossed for padding, dots for blocks that do not exist. */
function hatch(context, mark, colour) {
  const key = mark + colour;
  if (!hatches.has(key)) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 8;
    const on = tile.getContext("2d");
    on.strokeStyle = on.fillStyle = colour;
    on.globalAlpha = 0.55;
    on.beginPath();
    if (mark === ABSENT) (on.arc(4, 4, 1.1, 0, 7), on.fill());
    else {
      (on.moveTo(-2, 10), on.lineTo(10, -2), on.moveTo(-2, 2), on.lineTo(2, -2), on.moveTo(6, 10), on.lineTo(10, 6));
      if (mark === PADDING) (on.moveTo(-2, -2), on.lineTo(10, 10));
      on.stroke();
    }
    hatches.set(key, context.createPattern(tile, "repeat"));
  }
  return hatches.get(key);
}

function hidden(context, { marks, cols, line }, [top, bottom], [left, right], x, y, wide, high) {
  if (wide < 0.75) return; // pooled: transparent is enough
  for (let r = top; r < bottom; r++)
    for (let c = left; c < right; c++) {
      const mark = marks[r * cols + c];
      if (!mark) continue;
      let end = c + 1;
      while (end < right && marks[r * cols + end] === mark) end++;
      context.fillStyle = hatch(context, mark, line);
      context.fillRect(x + (c - left) * wide, y + (r - top) * high, (end - c) * wide, high);
      c = end - 1;
    }
}

/** The numbers inside cells that are large enough for them. */
export function numbers(
  context,
  { values, cols, scale, marks, line },
  [top, bottom],
  [left, right],
  x,
  y,
  wide,
  high,
  font,
) {
  context.font = font;
  context.textAlign = "center";
  context.textBaseline = "middle";
  for (let r = top; r < bottom; r++)
    for (let c = left; c < right; c++) {
      const at = r * cols + c;
      const hides = marks && marks[at];
      context.fillStyle = hides ? line : ink(scale, values[at]);
      if (hides === ABSENT) continue;
      context.fillText(hides ? "−∞" : brief(values[at]), x + (c - left + 0.5) * wide, y + (r - top + 0.5) * high);
    }
}

/** Bars around a line at 0, for vectors. */
export function bars(context, { values, scale, marks, bar, ground, line }, [left, right], x, y, wide, high) {
  const each = wide / (right - left);
  const zero = scale.low < 0 ? y + high / 2 : y + high;
  const unit = scale.low < 0 ? high / 2 / scale.high : high / scale.high;
  context.fillStyle = ground;
  context.fillRect(x, y, wide, high);
  for (let c = left; c < right; c++) {
    const value = marks?.[c] ? 0 : values[c];
    const tall = Math.max(-high, Math.min(high, value * unit));
    context.fillStyle = value < 0 ? bar[0] : bar[1];
    context.fillRect(
      x + (c - left) * each + (each > 3 ? 0.5 : 0),
      Math.min(zero, zero - tall),
      Math.max(each - (each > 3 ? 1 : 0), 0.5),
      Math.max(Math.abs(tall), value ? 0.75 : 0),
    );
  }
  context.fillStyle = line;
  context.fillRect(x, zero - 0.5, wide, 1);
}

/** A canvas of so many CSS pixels at the device's resolution; its context. */
export function sized(canvas, wide, high) {
  const ratio = Math.min(devicePixelRatio || 1, 3);
  const width = Math.max(1, Math.round(wide * ratio));
  const height = Math.max(1, Math.round(high * ratio));
  if (canvas.width !== width || canvas.height !== height) {
    canvas.width = width;
    canvas.height = height;
    canvas.style.width = `${wide}px`;
    canvas.style.height = `${high}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, wide, high);
  return context;
}

const looks = ["(prefers-color-scheme: dark)", "(forced-colors: active)"].map((each) => matchMedia(each));
let known = {};
/** Colours of the page, for what a canvas draws besides numbers. To ask the browser costs, so what it said is kept. */
export function colours() {
  const { theme, size } = document.documentElement.dataset;
  const key = [theme, size, ...looks.map((each) => each.matches)].join();
  if (known.key !== key) {
    const style = getComputedStyle(document.body);
    const of = (name) => style.getPropertyValue(name).trim();
    known = {
      key,
      line: of("--soft"),
      text: of("--text"),
      ground: of("--panel"),
      bar: [of("--minus"), of("--plus")],
      font: style.fontFamily,
    };
  }
  return known;
}
