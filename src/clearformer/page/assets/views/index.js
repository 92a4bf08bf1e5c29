// The views that answer a question about the whole run, in the order of their keys.
import { LensView } from "page/views/lens.js";
import { WroteView } from "page/views/wrote.js";
import { AblationsView } from "page/views/ablations.js";
import { CompareView } from "page/views/compare.js";
import { CarriedView } from "page/views/carried.js";
import { HeadsView } from "page/views/heads.js";
import { ScoreView } from "page/views/score.js";

export const VIEWS = [
  { name: "lens", title: "lens", View: LensView },
  { name: "wrote", title: "who wrote this", View: WroteView },
  { name: "ablations", title: "without a head", View: AblationsView },
  { name: "compare", title: "compare", View: CompareView },
  { name: "carried", title: "carried", View: CarriedView },
  { name: "heads", title: "head labels", View: HeadsView },
  { name: "score", title: "why this score", View: ScoreView },
];
