// The lessons have a room of their own; they are loaded when one is opened.
import { html } from "page/html.js";
import * as ui from "page/ui.js";
import { useAnswer, Waiting } from "page/load.js";
import { link } from "page/route.js";
import { source } from "page/state.js";

export function Lesson({ name }) {
  const { value, error } = useAnswer(() => import("page/lessons/index.js"), []);
  if (!value)
    return html`<main class="stage lesson" id="stage" tabindex="-1"><${Waiting} error=${error} what="the lessons" /></main>`;
  const { lessons } = value;
  const chosen = lessons.find((lesson) => lesson.name === name);
  return html`<main class="stage lesson" id="stage" tabindex="-1"><nav class="tabs" aria-label="lessons">
    <a href=${link({ lesson: null })}>← the model</a>
    ${lessons.map((lesson) => html`<a href=${link({ lesson: lesson.name })} aria-current=${lesson.name === name ? "page" : undefined}>
    ${lesson.title}</a>`)}</nav>
    ${chosen ? html`<${chosen.View} key=${name} source=${source.value} ui=${ui} />` : html`<h2>Lessons</h2>
      <ul class="lesson-list">${lessons.map((lesson) => html`<li><a href=${link({ lesson: lesson.name })}>
      ${lesson.title}</a></li>`)}</ul>`}</main>`;
}
