// The lessons: each example of `clearformer notes`, with a panel to play with where there is one.
import { useEffect } from "preact/hooks";
import { html, to } from "page/ui.js";
import { Bank } from "page/lessons/bank.js";
import { Cost } from "page/lessons/cost.js";
import { Lab } from "page/lessons/lab.js";
import { Masks } from "page/lessons/masks.js";
import { Norms } from "page/lessons/norms.js";
import { Example } from "page/lessons/notes.js";
import { Positions } from "page/lessons/positions.js";
import { Quiz } from "page/lessons/quiz.js";
import { Scaling } from "page/lessons/scaling.js";
import { Telescope } from "page/lessons/telescope.js";
import { Tokenizer } from "page/lessons/tokenizer.js";

const lab = (seed) => () => html`<${Lab} seed=${seed} />`;

// name, title, what it is about, where in the notes, a panel, a place in the model
const ROWS = [
  ["tokenizer", "Tokenizer", "A text as a model reads it", "", Tokenizer, "encoder.embed.tokens"],
  ["words", "Bank and apple", "From words to numbers: one-hot, TF-IDF, static vectors, context", "N1, N3", Bank, "encoder.embed.tokens"],
  ["bank", "Without parameters", "Self-attention without parameters, then with Q, K and V", "N3", lab("bank"), "encoder.0.self.h0"],
  ["softmax", "Softmax", "Scaled scores, softmax and the weighted sum", "N1", lab("softmax"), "encoder.0.self.h0.weights"],
  ["numerical", "Matrix lab", "Self-attention on three inputs, every step", "N2", lab("numerical"), "encoder.0.self.h0"],
  ["scaling", "Why √d", "Why the scores are divided by √d_k", "N0, N1, N3", Scaling, "encoder.0.self.h0.scores"],
  ["hash-table", "Soft hash table", "Attention as a soft hash table", "N2", lab("hash-table"), "encoder.0.self.h0"],
  ["heads", "Telescope", "Multi-head attention: heads side by side", "N0 to N3", Telescope, "encoder.0.self"],
  ["positions", "Positions", "Sinusoidal positions, the binary counter, the heat map", "N1 to N4", Positions, "encoder.embed.positions"],
  ["order", "Order", "Without positions, attention does not know the order", "N2, N3", null, "encoder.embed.placed"],
  ["norms", "Norms", "Residual connections; layer norm against batch norm", "N1 to N4", Norms, "encoder.0.self.before"],
  ["feed-forward", "Feed-forward", "The position-wise feed-forward layer: local against global", "N2, N3, N4", null, "encoder.0.feedforward.inner"],
  ["mask", "Masks", "The look-ahead mask and its softmax", "N2, N3, N4", Masks, "decoder.0.self.h0.weights"],
  ["columns", "Columns", "N4's column convention: Z = V softmax(KᵀQ/√p)", "N4", null, "encoder.0.self.h0"],
  ["cross", "Cross-attention", "Cross-attention and the alignment grid", "N0, N2, N3, N4", ({ source }) => html`<${Telescope} source=${source} kind="cross" />`, "decoder.0.cross.h0.weights"],
  ["teacher-forcing", "Teacher forcing", "Training in one pass, inference word by word", "N3", null, "head.logits"],
  ["vocabulary", "Vocabulary", "Linear and softmax: from a state to the next word", "N1 to N4", null, "head.logits"],
  ["families", "Families", "Encoder, decoder, both, and images", "N0, N1", null, ""],
  ["cost", "Cost", "Quadratic cost; BigBird and Linformer", "N2", Cost, "encoder.0.self.weights"],
  ["relative", "Relative positions", "Relative and dependency-syntax positions", "N2", null, "encoder.0.self.scores"],
  ["recurrence", "Recurrence", "Recurrence against attention: steps in sequence", "N2, N3", null, ""],
  ["quiz", "Quiz", "The quizzes, checked on a running model", "N0", Quiz, ""],
  ["apple", "Apple drifts", "Word2Vec trained on the spot: the average meaning follows the data", "N3", null, "encoder.embed.tokens"],
];

const view = ([name, , about, where, Panel, address]) =>
  function View({ source }) {
    useEffect(() => document.querySelector(".tabs a[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" }), []);
    const told = name !== "tokenizer" && name !== "quiz";
    return html`<article class="ls-lesson"><h2>${about}</h2>${where && html`<p class="ls-from">Lecture notes ${where}. ${!Panel && address && html`In a model: <a href=${to(address)}>${address}</a>.`}</p>`}
      ${Panel && html`<${Panel} source=${source} />`}
      ${told && html`<${Example} source=${source} name=${name} below=${Panel !== null} />`}</article>`;
  };

export const lessons = ROWS.map((row) => ({ name: row[0], title: row[1], about: row[2], View: view(row) }));
