// A matrix as a heat map: a canvas below, one focusable cell above it that the arrow keys move, a table on demand.
// Only what is visible is drawn, so 2,048 positions cost no more than 64.
import { signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { html } from "page/html.js";
import { scale as scaled } from "page/colour.js";
import { number, spoken } from "page/format.js";
import { axes, geometry } from "page/grid.js";
import * as paint from "page/paint.js";
import { Legend } from "page/legend.js";
import { NumberTable } from "page/table.js";
import { dark, said, size as pageSize } from "page/state.js";

const WHY = ["", "hidden: it comes later", "there is no such block", "hidden: padding"];

/**
 * @param {object} given  values (row by row), rows, cols; kind: share | length | signed; marks: why cells are hidden;
 *   rowWords, colWords, rowName, colName; address(r, c): what a cell is called; onOpen(r, c): a click or Enter;
 *   link: a signal {q, k, d} of what is pointed at, roles: which of these rows and columns are; bars: a vector.
 */
export function HeatMap(given) {
  const {
    values,
    rows,
    cols,
    kind = "signed",
    top = null,
    marks = null,
    rowWords = null,
    colWords = null,
    rowName = "row",
    colName = "column",
    rowStart = 0,
    colStart = 0,
  } = given;
  const {
    address = null,
    onOpen = null,
    link = null,
    roles = [],
    square = false,
    tall = 360,
    title = "",
    bars = false,
    picked = null,
    plain = false,
    most,
    named = false,
  } = given;
  const frame = useRef(null);
  const canvas = useRef(null);
  const [wide, setWide] = useState(0);
  const [zoom, setZoom] = useState(false);
  const [table, setTable] = useState(false);
  const [focus, setFocus] = useState(picked ?? [0, 0]);
  const hover = useMemo(() => signal(null), []);
  const unit = pageSize.value === "lecture" ? 20 : 15;
  const isDark = dark.value;
  const map = useMemo(
    () => ({
      values,
      cols,
      marks,
      scale: scaled(
        bars && kind === "signed" && values.every((each) => each >= 0) ? "length" : kind,
        values,
        isDark,
        top,
      ),
    }),
    [values, cols, marks, kind, isDark, top],
  );
  const g = geometry({ rows, cols, square, tall, bars, rowWords, colWords, most, named }, wide || 300, zoom, unit);
  const [r, c] = [Math.min(focus[0], rows - 1), Math.min(focus[1], cols - 1)];
  const shape = { rowWords, colWords, rowStart, colStart, rows, cols, bars, named };

  useLayoutEffect(() => {
    const box = frame.current.parentElement;
    const measure = () => setWide(Math.floor(box.clientWidth));
    measure();
    const watch = new ResizeObserver(measure);
    watch.observe(box);
    return () => watch.disconnect();
  }, []);

  const draw = () => {
    const box = frame.current;
    if (!box || !wide || !rows || !cols) return;
    const context = paint.sized(canvas.current, g.width, g.height);
    const colours = paint.colours();
    Object.assign(map, colours);
    const x = g.side - box.scrollLeft;
    const y = g.head - box.scrollTop;
    const seen = (offset, size, room, count) => [
      Math.max(0, Math.floor(offset / size)),
      Math.min(count, Math.ceil((offset + room) / size)),
    ];
    const columns = seen(box.scrollLeft, g.w, g.width - g.side, cols);
    const lines = bars ? [0, 1] : seen(box.scrollTop, g.h, g.height - g.head, rows);
    context.save();
    context.beginPath();
    context.rect(g.side, g.head, g.width, g.height);
    context.clip();
    const at = [x + columns[0] * g.w, y + lines[0] * g.h, (columns[1] - columns[0]) * g.w, (lines[1] - lines[0]) * g.h];
    if (bars) paint.bars(context, map, columns, ...at);
    else paint.cells(context, map, lines, columns, ...at);
    if (!bars && g.w >= 1.6 * unit && g.h >= 1.1 * unit)
      paint.numbers(
        context,
        map,
        lines,
        columns,
        at[0],
        at[1],
        g.w,
        g.h,
        `${(g.w < 1.95 * unit ? 0.58 : g.w < 2.05 * unit ? 0.64 : 0.72) * unit}px ${colours.font}`,
      );
    context.restore();
    axes(context, shape, g, colours, unit, lines, columns, x, y);
  };
  useLayoutEffect(draw);

  const cell = (event) => {
    const box = frame.current.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left + frame.current.scrollLeft - g.side) / g.w);
    const row = bars ? 0 : Math.floor((event.clientY - box.top + frame.current.scrollTop - g.head) / g.h);
    return row >= 0 && row < rows && column >= 0 && column < cols ? [row, column] : null;
  };
  const point = (at) => {
    hover.value = at;
    if (link)
      link.value = at
        ? { ...link.value, ...(roles[0] ? { [roles[0]]: at[0] } : {}), ...(roles[1] ? { [roles[1]]: at[1] } : {}) }
        : {};
  };
  const open = (at) => {
    setFocus(at);
    onOpen?.(...at);
  };
  const about = ([y, x]) => {
    const at = y * cols + x;
    const where =
      bars || rows === 1
        ? spoken(colName, x + colStart, colWords)
        : `${spoken(rowName, y + rowStart, rowWords)}, ${spoken(colName, x + colStart, colWords)}`;
    return `${where}: ${marks?.[at] ? WHY[marks[at]] : number(values[at])}`;
  };
  const move = (event) => {
    const page = Math.max(1, Math.floor(rows / 8));
    const steps = {
      ArrowLeft: [0, -1],
      ArrowRight: [0, 1],
      ArrowUp: [-1, 0],
      ArrowDown: [1, 0],
      PageUp: [-page, 0],
      PageDown: [page, 0],
      Home: [0, -cols],
      End: [0, cols],
    };
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      return open([r, c]);
    }
    const by = steps[event.key];
    if (!by || event.altKey || event.metaKey) return;
    event.preventDefault();
    const to = [
      Math.max(0, Math.min(rows - 1, r + by[0] * (event.ctrlKey ? rows : 1))),
      Math.max(0, Math.min(cols - 1, c + by[1] * (event.ctrlKey ? cols : 1))),
    ];
    setFocus(to);
    point(to);
    said.value = about(to);
    const box = frame.current;
    if (zoom) {
      box.scrollLeft = Math.min(Math.max(box.scrollLeft, (to[1] + 1) * g.w - (g.width - g.side)), to[1] * g.w);
      box.scrollTop = Math.min(Math.max(box.scrollTop, (to[0] + 1) * g.h - (g.height - g.head)), to[0] * g.h);
    }
  };
  useEffect(() => {
    if (picked) setFocus(picked);
  }, [picked?.[0], picked?.[1]]);

  const name = address?.(r, c);
  const small = !zoom && (g.w < 2.6 * unit || (!bars && g.h < unit));
  return html`<figure class="heat">
    ${
      !plain &&
      html`<figcaption>${title && html`<span class="what">${title}</span>`}
      <span class="axes">${bars || rows === 1 ? `${colName} →` : `${rowName} ↓ ${colName} →`}</span>
      <span class="tools">
        ${small && cols * rows > 1 && html`<button type="button" class="quiet" aria-pressed=${zoom}
          onClick=${() => setZoom(!zoom)}>zoom</button>`}
        ${zoom && html`<button type="button" class="quiet" aria-pressed="true" onClick=${() => setZoom(false)}>fit</button>`}
        <button type="button" class="quiet" aria-pressed=${table} onClick=${() => setTable(!table)}>table</button>
      </span></figcaption>`
    }
    <div class="heat-fit">
      <div class=${zoom ? "heat-box zoomed" : "heat-box"} ref=${frame}
        style=${{ width: `${g.width}px`, height: `${g.height}px` }} onScroll=${draw}
        onPointerMove=${(event) => point(cell(event))} onPointerLeave=${() => point(null)} onClick=${(event) => {
          const at = cell(event);
          if (at) open(at);
        }}>
      <div class="heat-space" style=${{ width: `${g.full[0]}px`, height: `${g.full[1]}px` }}>
        <canvas ref=${canvas} aria-hidden="true"></canvas>
        <${Bands} ...${{ link, roles, hover, g, rows, cols, bars }} />
        <div role="grid" aria-label=${`${title || "numbers"}: ${rowName} by ${colName}`} aria-rowcount=${rows} aria-colcount=${cols}>
          <div role="row" aria-rowindex=${r + 1}>
            <div role="gridcell" class="cell-focus" tabindex="0" id=${name || undefined}
              data-value=${marks?.[r * cols + c] ? "hidden" : String(values[r * cols + c])}
            aria-colindex=${c + 1} aria-label=${about([r, c])} onKeyDown=${move} onFocus=${() => point([r, c])} onBlur=${() => point(null)}
            style=${{ left: `${g.side + c * g.w}px`, top: `${g.head + r * g.h}px`, width: `${Math.max(g.w, 4)}px`, height: `${Math.max(g.h, 4)}px` }}>
              </div></div>
        </div>
      </div>
    </div></div>
    ${!plain && html`<div class="under"><${Legend} scale=${map.scale} marks=${marks} bars=${bars} />
      <${Readout} hover=${hover} about=${about} /></div>`}
    ${table && html`<${NumberTable} ...${{ values, rows, cols, marks, rowName, colName, rowWords, colWords, rowStart, colStart, address }} />`}
  </figure>`;
}

const Readout = ({ hover, about }) =>
  html`<output class="readout" aria-hidden="true">${hover.value ? about(hover.value) : ""}</output>`;

/** The row and column that are pointed at, here or in a map beside it. */
function Bands({ link, roles, hover, g, rows, cols, bars }) {
  const at = link?.value ?? {};
  const row = hover.value?.[0] ?? at[roles[0]];
  const column = hover.value?.[1] ?? at[roles[1]];
  return html`${row >= 0 && row < rows && !bars && html`<i class="band"
    style=${{ left: `${g.side}px`, top: `${g.head + row * g.h}px`, width: `${cols * g.w}px`, height: `${g.h}px` }}>
    </i>`}
    ${column >= 0 && column < cols && html`<i class="band"
      style=${{ left: `${g.side + column * g.w}px`, top: `${g.head}px`, width: `${g.w}px`, height: `${bars ? g.h : rows * g.h}px` }}>
      </i>`}`;
}
