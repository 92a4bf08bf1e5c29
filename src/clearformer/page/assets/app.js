// The page: everything put together, and started.
import { render } from "preact";
import { html } from "page/html.js";
import { embeddedSource } from "page/embedded.js";
import { httpSource } from "page/source.js";
import { Listing } from "page/listing.js";
import { Top } from "page/top.js";
import { ModelMap } from "page/map.js";
import { Stage } from "page/stage.js";
import { Inspector } from "page/inspector.js";
import { Bottom } from "page/timeline.js";
import { Lesson } from "page/lesson.js";
import { Changed } from "page/change.js";
import { Help } from "page/help.js";
import { listen } from "page/keys.js";
import { route } from "page/route.js";
import { busy, fail, follow, listing, models, problem, root, run, said, source } from "page/state.js";
import { access, Locked } from "page/access.js";

function App() {
  const lesson = route.value.lesson;
  return html`<a class="skip" href="#stage" onClick=${(event) => {
    event.preventDefault();
    document.getElementById("stage")?.focus();
  }}>to the stage</a>
    <${Top} />
    <${Problem} />
    ${
      lesson !== undefined
        ? html`<${Lesson} name=${lesson} />`
        : html`<${Changed} /><div class=${busy.value ? "room busy" : "room"}>
      ${listing.value && html`<${ModelMap} />`}<${Stage} />${listing.value && html`<${Inspector} />`}</div>
        ${listing.value && html`<${Bottom} />`}`
    }
    <${Help} /><div class="unseen" aria-live="polite" role="status">${said.value}</div>`;
}

function Problem() {
  const found = problem.value;
  if (!found) return null;
  if (found.locked) return html`<${Locked} onDone=${start} />`;
  return html`<div class="banner" role="alert"><p>${found.message}</p>
    <button type="button" onClick=${() => {
      problem.value = null;
      if (models.value.length) run(true);
      else start();
    }}>try again</button>
    <button type="button" class="quiet" onClick=${() => (problem.value = null)}>dismiss</button></div>`;
}

async function start() {
  problem.value = null;
  try {
    models.value = await root.value.models();
    if (!models.value.length) fail(new Error("This server has no models to look into."));
  } catch (error) {
    fail(error);
  }
}

const data = document.getElementById("clearformer-data");
listen();
if (data) {
  embeddedSource(JSON.parse(data.textContent)).then((found) => {
    root.value = source.value = found;
    listing.value = new Listing(found.listing);
  }, fail);
} else {
  root.value = httpSource("", () => access.value);
  follow();
  start();
}
render(html`<${App} />`, document.getElementById("app"), undefined);
document.querySelector("#app > .loading")?.remove();
