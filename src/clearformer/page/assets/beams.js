// The beam as a tree: a column a step; kept hypotheses solid, pruned dashed, finished boxed, with both scores.
import { html, number, word, Table } from "page/ui.js";

const WIDE = 132,
  TALL = 30;

/** The nodes of the tree with their places: children of better score stand higher. */
export function placed(tree, penalty) {
  const nodes = tree.map((node) => ({ node, children: [], parent: null, depth: 0, path: [], line: 0, normalised: 0 }));
  for (const mine of nodes) {
    const parent = nodes[mine.node.parent];
    if (!parent) continue;
    parent.children.push(mine);
    const depth = parent.depth + 1;
    Object.assign(mine, { parent, depth, path: [...parent.path, mine.node.id] });
    mine.normalised = mine.node.score / depth ** penalty;
  }
  let lines = 0;
  const found = [];
  for (const waiting = [nodes[0]]; waiting.length; ) {
    const mine = waiting.pop();
    if (mine.parent && mine !== mine.parent.children[0]) lines++;
    mine.line = lines;
    mine.pruned = !mine.node.ended && !mine.children.length && !mine.node.chosen;
    mine.children.sort((a, b) => b.node.chosen - a.node.chosen || b.node.score - a.node.score);
    waiting.push(...mine.children.toReversed());
    found.push(mine);
  }
  return { nodes: found, lines: lines + 1, deepest: Math.max(...found.map((each) => each.depth)) };
}

export function BeamTree({ run }) {
  const penalty = (run.options?.num_beams ?? 1) > 1 ? (run.options?.length_penalty ?? 0) : 0;
  const { nodes, lines, deepest } = placed(run.tree, penalty);
  const x = (depth) => 6 + depth * WIDE;
  const y = (line) => 8 + line * TALL;
  const shown = nodes.slice(0, 1500);
  return html`<div class="scroll-x tree-box" tabindex="0" role="region" aria-label="beam tree">
    <svg class="beam-tree" width=${x(deepest + 1)} height=${y(lines) + 4} role="img"
      aria-label=${`beam of ${run.options?.num_beams ?? 1}: ${nodes.length - 1} hypotheses`}>
      ${shown.filter((each) => each.parent).map((each) => html`<path class=${each.node.chosen ? "edge chosen" : each.pruned ? "edge pruned" : "edge"}
        d=${`M${x(each.parent.depth) + WIDE - 26} ${y(each.parent.line) + 11}C${x(each.depth) - 14} ${y(each.parent.line) + 11} ${x(each.depth) - 14} ${y(each.line) + 11} ${x(each.depth) - 2} ${y(each.line) + 11}`} />`)}
      ${shown.map((each) => html`<g key=${each.path.join()}
        class=${["node", each.node.chosen ? "chosen" : "", each.pruned ? "pruned" : "", each.node.ended ? "ended" : ""].join(" ")}
        data-path=${each.path.join(",")} data-score=${String(each.node.score)}
        transform=${`translate(${x(each.depth)} ${y(each.line)})`}>
        <title>${`${number(each.node.score)}, normalised ${number(each.normalised)}`}</title>
        <rect width=${WIDE - 26} height="23" rx=${each.node.ended ? 0 : 11} /><text x="8" y="15">
        ${word(each.node.token, 8)}</text>${each.depth > 0 && html`<text class="score" x=${WIDE - 32} y="15">
        ${each.node.score.toFixed(2).replace("-", "−")}</text>`}</g>`)}
    </svg></div>
    <p class="note">Solid: kept. Dashed: dropped, because ${run.options?.num_beams ?? 1} others scored better. Boxed: finished. Numbers are sums of log-probabilities; finished texts are ranked by the score divided by their length${penalty !== 1 ? ` to the power ${penalty}` : ""}. The best of the beam is not always the likeliest text.</p>
    <details><summary>table</summary>
      <${Table} label="hypotheses" heads=${["step", "text", "score", "normalised", ""]}
        rows=${shown.slice(1).map((each) => [each.depth, trail(each), number(each.node.score), number(each.normalised), each.node.ended ? "finished" : each.pruned ? "pruned" : "kept"])} />
      </details>`;
}

function trail(each) {
  const words = [];
  for (let at = each; at.parent; at = at.parent) words.unshift(word(at.node.token, 12));
  return html`<bdi>${words.join(" ")}</bdi>`;
}
