// A small heat map without labels or focus: it stands inside a link that names it. Drawn when it comes into view.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { html } from "page/html.js";
import { scale as scaled } from "page/colour.js";
import * as paint from "page/paint.js";
import { dark } from "page/state.js";

export function Thumb({ values, rows, cols, kind = "share", wide = 64, high = null, marks = null, top = null }) {
  const canvas = useRef(null);
  const isDark = dark.value;
  const tall = high ?? Math.max(8, Math.min(wide * 1.6, (wide * rows) / cols));
  useLayoutEffect(() => {
    const context = paint.sized(canvas.current, wide, tall);
    if (!values) return;
    const map = { values, cols, marks, scale: scaled(kind, values, isDark, top), ...paint.colours() };
    paint.cells(context, map, [0, rows], [0, cols], 0, 0, wide, tall);
  }, [values, marks, isDark, wide, tall, kind]);
  return html`<canvas ref=${canvas} class="thumb" aria-hidden="true" style=${{ width: `${wide}px`, height: `${tall}px` }}>
    </canvas>`;
}

/** Whether an element has come near the visible part of the page; once true it stays so. */
export function useSeen() {
  const box = useRef(null);
  const [seen, set] = useState(false);
  useEffect(() => {
    if (seen || !box.current) return;
    const watch = new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && set(true), {
      rootMargin: "200px",
    });
    watch.observe(box.current);
    return () => watch.disconnect();
  }, [seen]);
  return [box, seen];
}
