// Share and export: the link, the current view as SVG or PNG, the whole run as one HTML file.
import { useState } from "preact/hooks";
import { html } from "page/html.js";
import { Copy } from "page/copy.js";
import { picture, png } from "page/snapshot.js";
import { link } from "page/route.js";
import { address, fail, image, listing, source, step, view } from "page/state.js";

export const Share = () =>
  html`<${Copy} text=${() => location.href.split("#")[0] + link({ s: step.value || null })}
    done=${image.value ? "copied, without the picture" : "copied"}
    title=${image.value ? "The link holds no picture: who opens it gives it again. An exported file has it." : "copy the link to this view"}>
    share</${Copy}>`;

function save(blob, name) {
  const anchor = document.createElement("a");
  anchor.href = URL.createObjectURL(blob);
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(anchor.href), 10_000);
}

export function Export() {
  const [open, setOpen] = useState(false);
  const name = () => (view.value === "inside" ? address.value || "model" : view.value).replace(/[^\w.-]+/g, "_");
  const make = async (kind) => {
    setOpen(false);
    try {
      const stage = document.getElementById("stage");
      if (kind === "html") return save(await source.value.exported(), `${listing.value.data.model ?? "trace"}.html`);
      const made = picture(stage);
      save(kind === "svg" ? new Blob([made.text], { type: "image/svg+xml" }) : await png(made), `${name()}.${kind}`);
    } catch (error) {
      fail(error);
    }
  };
  if (!listing.value) return null;
  return html`<span class="menu" onFocusOut=${(event) => !event.currentTarget.contains(event.relatedTarget) && setOpen(false)}>
    <button type="button" aria-expanded=${open} aria-haspopup="true" onClick=${() => setOpen(!open)}>export</button>
    ${open && html`<span class="menu-list">
      <button type="button" onClick=${() => make("svg")}>this view as SVG</button>
      <button type="button" onClick=${() => make("png")}>this view as PNG</button>
      ${source.value.live && html`<button type="button" onClick=${() => make("html")}>everything as one HTML file</button>`}
      </span>`}</span>`;
}
