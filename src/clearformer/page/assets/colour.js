// Colours of numbers. Shares and lengths: cividis, which colour-blind eyes read as others do. Signed numbers: blue for
// less than 0, orange for more, and the ground's own colour at 0.

const CIVIDIS = [
  [0, 34, 78],
  [18, 53, 112],
  [59, 73, 108],
  [87, 93, 109],
  [112, 113, 115],
  [138, 134, 120],
  [165, 156, 116],
  [195, 179, 105],
  [225, 204, 85],
  [254, 232, 56],
];
const SIGNED = {
  light: [
    [23, 78, 138],
    [94, 146, 199],
    [183, 209, 232],
    [248, 248, 246],
    [246, 209, 170],
    [221, 139, 66],
    [158, 78, 12],
  ],
  dark: [
    [143, 196, 250],
    [77, 135, 196],
    [44, 74, 107],
    [30, 34, 40],
    [104, 70, 37],
    [193, 122, 55],
    [255, 190, 120],
  ],
};

/** 256 colours between the anchors, as bytes r g b. */
function ramp(anchors) {
  const made = new Uint8ClampedArray(256 * 3);
  for (let n = 0; n < 256; n++) {
    const at = (n / 255) * (anchors.length - 1);
    const low = Math.min(Math.floor(at), anchors.length - 2);
    for (let c = 0; c < 3; c++)
      made[3 * n + c] = anchors[low][c] + (at - low) * (anchors[low + 1][c] - anchors[low][c]);
  }
  return made;
}
const RAMPS = { share: ramp(CIVIDIS), light: ramp(SIGNED.light), dark: ramp(SIGNED.dark) };

/** @typedef {{ramp: Uint8ClampedArray, low: number, high: number, kind: string}} Scale */

/**
 * The scale of some numbers. `share`: 0 to 1; `length`: 0 to the largest; `signed`: as far below 0 as above.
 * @returns {Scale}
 */
export function scale(kind, values, isDark = false, top = null) {
  if (kind === "share") return { ramp: RAMPS.share, low: 0, high: 1, kind };
  let most = top ?? 0;
  if (top === null)
    for (let n = 0; n < values.length; n++) {
      const size = Math.abs(values[n]);
      if (size > most && size < 1e30) most = size;
    }
  most ||= 1;
  if (kind === "length") return { ramp: RAMPS.share, low: 0, high: most, kind };
  return { ramp: RAMPS[isDark ? "dark" : "light"], low: -most, high: most, kind };
}

/** The place of a number on its ramp, 0 to 255. */
export const level = (of, value) =>
  Math.max(0, Math.min(255, Math.round((255 * (value - of.low)) / (of.high - of.low)))) || 0;

export function rgb(of, value) {
  const n = 3 * level(of, value);
  return `rgb(${of.ramp[n]} ${of.ramp[n + 1]} ${of.ramp[n + 2]})`;
}

/** Black or white, whichever is read better on the colour of a number. */
export function ink(of, value) {
  const n = 3 * level(of, value);
  const light = [0.2126, 0.7152, 0.0722].reduce((sum, share, c) => sum + share * (of.ramp[n + c] / 255) ** 2.2, 0);
  return light > 0.18 ? "#000" : "#fff";
}

/** A gradient for a legend, as a list of colours. */
export const stops = (of, count = 9) =>
  Array.from({ length: count }, (_, n) => rgb(of, of.low + ((of.high - of.low) * n) / (count - 1)));
