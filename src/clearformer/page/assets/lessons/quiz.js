// The quizzes: one question at a time; what is right is shown after an answer, with the numbers that bear it out.
import { useEffect, useRef, useState } from "preact/hooks";
import { Button, html } from "page/lessons/kit.js";
import { State, lesson, useAsked } from "page/lessons/ask.js";
import { to } from "page/ui.js";

const LETTERS = "ABCDEFG";

/** Each question with the checks that follow it. */
export function grouped(sections) {
  const found = [];
  for (const section of sections) {
    if (section.kind === "question") found.push({ ...section, checks: [] });
    else if (section.kind === "check") found.at(-1)?.checks.push(section);
  }
  return found;
}

export function Quiz({ source }) {
  const found = useAsked(() => lesson(source, "quiz"), [source?.live]);
  const [at, setAt] = useState(0);
  const [answers, setAnswers] = useState({}); // number of the question → letters
  const read = found.value ?? found.old; // while the page opens its model the questions are asked for again
  const questions = read ? grouped(read.sections) : [];
  const score = questions.filter((each, n) => answers[n] === each.answers).length;
  const answered = Object.keys(answers).length;
  const again = () => { setAnswers({}); setAt(0); };
  return html`<section class="ls-panel" aria-label="quiz">
    <p class="ls-say">Answer, then see what a model says: each right answer is checked on one, untrained, so that it holds of any.</p>
    <${State} of=${found} what="computing the answers" />
    ${questions.length > 0 && html`<p class="ls-score" role="status">Score: <b>${score}</b> of ${answered} answered, ${questions.length} questions.</p>
      ${at < questions.length ? html`<${Asked} key=${at} number=${at} of=${questions.length} question=${questions[at]} given=${answers[at]} onAnswer=${(letters) => setAnswers({ ...answers, [at]: letters })} onNext=${() => setAt(at + 1)} />`
        : html`<div class="ls-end"><h3>${score} of ${questions.length} right</h3><ul>${questions.map((each, n) => html`<li><span aria-hidden="true">${answers[n] === each.answers ? "✓" : "✗"}</span> ${answers[n] === each.answers ? "right" : "wrong"}: ${each.text}</li>`)}</ul><${Button} onClick=${again}>Start again</${Button}></div>`}`}
  </section>`;
}

function Asked({ number, of, question, given, onAnswer, onNext }) {
  const [chosen, setChosen] = useState("");
  const next = useRef(null);
  const many = question.answers.length > 1;
  const done = given !== undefined;
  useEffect(() => { if (done) next.current?.focus(); }, [done]);
  const latest = useRef(""); // keys may come faster than the page is drawn
  const pick = (letter, on) => {
    latest.current = many ? [...new Set([...latest.current, letter])].filter((each) => on || each !== letter).sort().join("") : letter;
    setChosen(latest.current);
  };
  const [told, setTold] = useState(false);
  const submit = (event) => {
    event.preventDefault();
    if (done) return;
    if (latest.current) onAnswer(latest.current);
    else setTold(true);
  };
  return html`<form class="ls-question" onSubmit=${submit}><fieldset><legend>Question ${number + 1} of ${of}: ${question.text}${many ? " (choose all that are true)" : ""}</legend>
    ${question.options.map((option, n) => {
      const letter = LETTERS[n];
      const right = question.answers.includes(letter);
      const verdict = done ? (right ? "ls-right" : (given.includes(letter) ? "ls-wrong" : "")) : "";
      return html`<label class=${`ls-option ${verdict}`}><input type=${many ? "checkbox" : "radio"} name="option" value=${letter} disabled=${done} checked=${(given ?? chosen).includes(letter)} onChange=${(event) => pick(letter, event.target.checked)} />
        <span>${letter}  ${option}${done && right ? " ✓ right" : ""}${done && !right && given.includes(letter) ? " ✗ not so" : ""}</span></label>`;
    })}</fieldset>
    ${!done && html`<button class="ls-button">Answer</button>`}
    ${!done && told && !chosen && html`<p class="ls-problem" role="status">Choose an answer first.</p>`}
    ${done && html`<div class="ls-told" role="status"><p><b>${given === question.answers ? "Right." : `Not quite: it is ${[...question.answers].join(", ")}.`}</b></p>
      <ul>${question.checks.map((check) => html`<li>${check.holds ? "✓" : "✗"} ${check.claim} <small>(${check.seen})</small></li>`)}</ul>
      ${question.address && html`<p><a href=${to(question.address)}>See it in the running model: <code>${question.address}</code></a></p>`}
      <button type="button" class="ls-button" ref=${next} onClick=${onNext}>${number + 1 < of ? "Next question" : "To the result"}</button></div>`}</form>`;
}
