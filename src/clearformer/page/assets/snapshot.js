// What is on the stage as one SVG: canvases as images, drawings as they are, texts as texts. No foreign parts, so that
// it can be drawn into a PNG and opened anywhere.

const escaped = (text) =>
  text
    .replace(/[&<>"]/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[sign])
    .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f]/g, "");
const DRAWN = [
  "fill",
  "stroke",
  "stroke-width",
  "stroke-dasharray",
  "opacity",
  "fill-opacity",
  "font-size",
  "font-family",
  "text-anchor",
  "font-weight",
];

/** A drawing with its looks written into it. */
function drawing(svg) {
  const copy = svg.cloneNode(true);
  const from = [svg, ...svg.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((element, n) => {
    const style = getComputedStyle(from[n]);
    for (const name of DRAWN) element.setAttribute(name, style.getPropertyValue(name));
    element.removeAttribute("class");
    element.removeAttribute("href");
  });
  return copy;
}

export function picture(stage) {
  const box = stage.getBoundingClientRect();
  const wide = Math.ceil(stage.scrollWidth),
    high = Math.ceil(stage.scrollHeight);
  const parts = [];
  const at = (rect) =>
    [rect.left - box.left + stage.scrollLeft, rect.top - box.top + stage.scrollTop].map((each) => each.toFixed(1));
  const visit = (element) => {
    const style = getComputedStyle(element);
    const rect = element.getBoundingClientRect();
    if (style.display === "none" || style.visibility === "hidden" || (!rect.width && !rect.height)) return;
    const [x, y] = at(rect);
    if (element instanceof HTMLCanvasElement)
      return parts.push(
        `<image x="${x}" y="${y}" width="${rect.width}" height="${rect.height}" href="${element.toDataURL("image/png")}"/>`,
      );
    if (element instanceof HTMLImageElement)
      return parts.push(
        `<image x="${x}" y="${y}" width="${rect.width}" height="${rect.height}" href="${escaped(element.src)}"/>`,
      );
    if (element instanceof SVGSVGElement) {
      const copy = drawing(element);
      for (const [name, value] of Object.entries({ x, y, width: rect.width, height: rect.height }))
        copy.setAttribute(name, value);
      return parts.push(new XMLSerializer().serializeToString(copy));
    }
    if (element.matches?.("nav, button, .tools, .cell-focus, .band, select, input")) return;
    const ground = style.backgroundColor,
      line = parseFloat(style.borderTopWidth) ? style.borderTopColor : "none";
    if (element !== stage && (!/, 0\)|transparent/.test(ground) || line !== "none"))
      parts.push(
        `<rect x="${x}" y="${y}" width="${rect.width}" height="${rect.height}" rx="${parseFloat(style.borderTopLeftRadius) || 0}" fill="${/, 0\)|transparent/.test(ground) ? "none" : ground}" stroke="${line}"/>`,
      );
    for (const child of element.childNodes) {
      if (child.nodeType === Node.TEXT_NODE && child.data.trim()) words(child, style);
      else if (child.nodeType === Node.ELEMENT_NODE) visit(child);
    }
  };
  /** A text, line by line as it is broken on the page. */
  const words = (node, style) => {
    const range = document.createRange();
    let from = 0;
    for (let end = 1; end <= node.length; end++) {
      range.setStart(node, from);
      range.setEnd(node, end);
      if (end < node.length && range.getClientRects().length < 2) continue;
      if (end < node.length) range.setEnd(node, end - 1);
      const rect = range.getBoundingClientRect();
      if (rect.width) {
        const [x, y] = at(rect);
        parts.push(
          `<text x="${x}" y="${(Number(y) + rect.height * 0.78).toFixed(1)}" fill="${style.color}" font-family="${escaped(style.fontFamily)}" font-size="${style.fontSize}" font-weight="${style.fontWeight}">${escaped(range.toString())}</text>`,
        );
      }
      from = end < node.length ? end - 1 : end;
    }
  };
  visit(stage);
  const ground = getComputedStyle(document.body).backgroundColor;
  return {
    text: `<svg xmlns="http://www.w3.org/2000/svg" width="${wide}" height="${high}" viewBox="0 0 ${wide} ${high}"><rect width="100%" height="100%" fill="${ground}"/>${parts.join("\n")}</svg>`,
    wide,
    high,
  };
}

/** The same as a PNG, at twice the size. */
export async function png({ text, wide, high }) {
  const shown = new Image();
  shown.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await shown.decode();
  const canvas = document.createElement("canvas");
  const twice = Math.min(2, 8000 / Math.max(wide, high));
  canvas.width = wide * twice;
  canvas.height = high * twice;
  canvas.getContext("2d").drawImage(shown, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}
