// How a heat map lies on its canvas: the size of cells, and the words and numbers along its axes.
import { label, word } from "page/format.js";

/** How large cells and labels are, in so many pixels. */
export function geometry({ rows, cols, square, tall, bars, rowWords, colWords, most, named }, wide, zoom, unit) {
  const longest = (words, count) =>
    words
      ? Math.min(
          named ? 24 : 9,
          Math.max(...words.slice(0, Math.min(count, 200)).map((each) => [...word(each)].length), 1),
        ) + (named ? 0 : String(count).length + 1)
      : String(Math.max(0, count - 1)).length;
  const side = bars ? 0 : Math.min(longest(rowWords, rows) * 0.52 * unit + 10, wide * 0.3);
  const room = Math.max(40, wide - side - 2);
  const fit = most ?? (square ? 3 * unit : 2.2 * unit);
  let w = Math.min(fit, room / cols);
  let h = bars ? tall : square ? Math.min(w, tall / rows) : Math.min(1.4 * unit, tall / rows);
  if (square) w = h = Math.min(w, h);
  if (zoom) [w, h] = [Math.max(w, 2.8 * unit), bars ? h : Math.max(h, square ? 2.8 * unit : 1.4 * unit)];
  const across = longest(colWords, cols) * 0.56 * unit < w - 4;
  const head =
    cols < 2 && !colWords
      ? 0
      : !colWords || across || w < 0.75 * unit
        ? 1.3 * unit
        : Math.min(longest(colWords, cols) * (named ? 0.43 : 0.37) * unit + 10, (named ? 10 : 5.5) * unit);
  const slanted = colWords && !across && w >= 0.75 * unit;
  const tail = slanted ? Math.min(longest(colWords.slice(-3), cols) * (named ? 0.14 : 0.28) * unit, 0.3 * room) : 0;
  if (slanted && !zoom && cols * w + tail > room) {
    w = (room - tail) / cols;
    if (square) h = w;
  }
  const width = Math.min(wide, side + cols * w + tail + 1);
  const height = head + Math.min(rows * h, zoom ? Math.max(tall, 16 * unit) : Infinity) + 1;
  return { side, head, w, h, across, width, height, full: [side + cols * w + tail + 1, head + (bars ? h : rows * h) + 1] };
}

/** Words and numbers on the axes, for the cells that are in view. */
export function axes(
  context,
  { rowWords, colWords, rowStart, colStart, bars, named },
  g,
  colours,
  unit,
  [top, bottom],
  [left, right],
  x,
  y,
) {
  context.fillStyle = colours.text;
  context.font = `${0.75 * unit}px ${colours.font}`;
  context.textBaseline = "middle";
  context.textAlign = "right";
  const called = (n, words) => (named ? word(words[n]) : label(n, words));
  const every = (size) => Math.max(1, Math.ceil((0.95 * unit) / size));
  const rowEvery = every(g.h);
  if (!bars)
    for (let r = top; r < bottom; r++)
      if (r % rowEvery === 0)
        text(
          context,
          rowWords ? called(r, rowWords) : String(r + rowStart),
          g.side - 5,
          y + (r + 0.5) * g.h,
          g.side - 6,
        );
  const columnEvery = colWords && g.w >= 0.75 * unit ? 1 : every(g.w / (g.across ? 1 : 1.8));
  for (let c = left; c < right; c++) {
    if (c % columnEvery) continue;
    const at = x + (c + 0.5) * g.w;
    if (at < g.side || ((!colWords || g.w < 0.75 * unit) && at + 0.25 * unit * String(c + colStart).length > g.width)) continue;
    if (!colWords || g.across || g.w < 0.75 * unit) {
      context.textAlign = "center";
      text(
        context,
        colWords && g.across ? called(c, colWords) : String(c + colStart),
        at,
        g.head - 0.6 * unit,
        colWords && g.across ? g.w - 2 : 99,
      );
    } else {
      context.save();
      context.translate(at - 0.1 * unit, g.head - 4);
      context.rotate(-Math.PI / (named ? 2.4 : 3));
      context.textAlign = "left";
      text(context, called(c, colWords), 0, 0, g.head * 1.1);
      context.restore();
    }
  }
}

function text(context, said, x, y, most) {
  let shown = said;
  while (context.measureText(shown).width > most && shown.length > 2) shown = [...shown].slice(0, -2).join("") + "…";
  context.fillText(shown, x, y);
}
