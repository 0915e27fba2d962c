// What a class looks like: a colour and a shape, the same on the map, in the legend and in the list.

/** Colours are --class-0 … of the style sheet; a shape is how many corners, and the turn of the first. */
export const COLOURS = 7;
const UP = -Math.PI / 2;
const SHAPES = [[0, 0, 1], [4, Math.PI / 4, 1.2], [3, UP, 1.35], [4, 0, 1.25], [5, UP, 1.15], [6, 0, 1.1]];

const known = new Map();

/** Labels in the order in which the service first told of them: it only ever grows. */
export function learn(labels) {
  for (let at = known.size; at < labels.length; at += 1) known.set(labels[at], at);
}

/** {colour, shape} of a label. */
export function glyphOf(label) {
  const at = known.get(label) ?? 0;
  return { colour: at % COLOURS, shape: (at + Math.floor(at / COLOURS)) % SHAPES.length };
}

/** Corners [[x, y], ...] of a shape around a point; null for a circle. */
export function corners(shape, x, y, radius) {
  const [count, turn, wide] = SHAPES[shape];
  if (!count) return null;
  return Array.from({ length: count }, (_, at) => {
    const angle = turn + (2 * Math.PI * at) / count;
    return [x + wide * radius * Math.cos(angle), y + wide * radius * Math.sin(angle)];
  });
}

const SVG = "http://www.w3.org/2000/svg";

/** The glyph of a label in a state, as on the map. */
export function glyph(label, state) {
  const { colour, shape } = glyphOf(label);
  const drawing = document.createElementNS(SVG, "svg");
  for (const [name, value] of [["width", 14], ["height", 14], ["aria-hidden", "true"]]) drawing.setAttribute(name, value);
  const points = corners(shape, 7, 7, 4.4);
  const mark = document.createElementNS(SVG, points ? "polygon" : "circle");
  const shaped = points ? [["points", points.map((point) => point.map((at) => at.toFixed(1)).join(",")).join(" ")]] : [["cx", 7], ["cy", 7], ["r", 4.4]];
  for (const [name, value] of [...shaped, ["class", `mark-${state}`]]) mark.setAttribute(name, value);
  mark.style.setProperty("--mark", `var(--class-${colour})`);
  drawing.append(mark);
  return drawing;
}
