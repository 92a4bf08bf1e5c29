// Bars with names: for a handful of numbers that are compared or add up.
import { html } from "page/html.js";
import { number, signed } from "page/format.js";

/**
 * @param {{items: {name: any, value: number, href?: string, note?: any, chosen?: boolean, title?: string, onClick?: () => void}[],
 *   most?: number, plus?: boolean, show?: (value: number) => string, label?: string}} given  `plus` writes signs.
 */
export function Bars({ items, most = null, plus = false, show = null, label = "" }) {
  const top = most ?? Math.max(...items.map((item) => Math.abs(item.value)), 1e-30);
  const both = items.some((item) => item.value < 0);
  const say = show ?? (plus ? signed : number);
  const noted = items.some((item) => item.note); // then every line leaves room for one
  return html`<ul class=${["bars", both ? "both" : "", noted ? "noted" : ""].join(" ")} aria-label=${label}>${items.map((item) => {
    const share = Math.min(1, Math.abs(item.value) / top) * (both ? 50 : 100);
    const inside = html`<span class="bar-name" dir="auto">${item.name}</span>
      <span class="bar-track" aria-hidden="true">
        <span class=${item.value < 0 ? "bar minus" : "bar"}
          style=${{ width: `${share}%`, left: both ? `${item.value < 0 ? 50 - share : 50}%` : "0" }}>
        </span></span>
      <span class="bar-value" data-value=${String(item.value)}>${say(item.value)}</span>`;
    const kind = item.chosen ? "chosen" : "";
    if (item.onClick)
      return html`<li class=${kind}><button type="button" class="bar-line" onClick=${item.onClick} title=${item.title}>${inside}
        </button>${item.note}</li>`;
    return html`<li class=${kind}>${item.href ? html`<a class="bar-line" href=${item.href} title=${item.title}>${inside}
      </a>` : html`<span class="bar-line">${inside}</span>`}${item.note}</li>`;
  })}</ul>`;
}
