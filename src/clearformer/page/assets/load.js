// Waiting for answers inside components.
import { useEffect, useState } from "preact/hooks";
import { html } from "page/html.js";
import { fail } from "page/state.js";

/**
 * What a promise gives, once it does: {value}, {error}, or {} while it is on its way. Asked again when `keys` change;
 * what was there before stays until then, so that nothing flickers.
 */
export function useAnswer(make, keys) {
  const [found, set] = useState({});
  useEffect(() => {
    let mine = true;
    Promise.resolve()
      .then(make)
      .then(
        (value) => mine && set({ value, keys }),
        (error) => {
          if (!mine || error.name === "AbortError") return;
          if (error.gone || error.locked) fail(error);
          set({ error, keys });
        },
      );
    return () => (mine = false);
  }, keys);
  return found.keys && found.keys.every((key, n) => key === keys[n]) ? found : { old: found.value };
}

export const Waiting = ({ error, what = "numbers" }) =>
  error
    ? html`<p class="problem" role="status">${error.message}</p>`
    : html`<p class="waiting" role="status">loading ${what} …</p>`;
