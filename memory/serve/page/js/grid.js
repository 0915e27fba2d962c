// Lines of the map frame with their metres, and its origin.

const L = window.L;
const STEP_PX = 90;
/** Free of numbers: the numbers of x at the top, the scale bar at the bottom. */
const TOP_PX = 24, BOTTOM_PX = 22;

/** 1, 2 or 5 times a power of ten. */
export function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((times) => times * power).find((step) => step >= least * 0.999);
}

const words = (value, step) => {
  const text = Math.abs(value) >= 1e6 ? value.toExponential(2) : value.toFixed(step < 1 ? Math.ceil(-Math.log10(step)) : 0);
  return Number(text) === 0 ? "0" : text;
};

/** A layer below the marks. */
export const Grid = L.Layer.extend({
  initialize(colours) {
    this.colours = colours;
  },

  onAdd(map) {
    this.map = map;
    this.canvas = L.DomUtil.create("canvas", "grid leaflet-zoom-hide");
    this.canvas.setAttribute("aria-hidden", "true");
    map.getPane("tilePane").append(this.canvas);
    map.on("move resize zoomend viewreset", this.draw, this);
    this.draw();
  },

  onRemove(map) {
    map.off("move resize zoomend viewreset", this.draw, this);
    this.canvas.remove();
  },

  recolour(colours) {
    this.colours = colours;
    this.draw();
  },

  draw() {
    const { map, canvas } = this;
    const size = map.getSize();
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    if (canvas.width !== Math.round(size.x * ratio) || canvas.height !== Math.round(size.y * ratio)) {
      canvas.width = Math.round(size.x * ratio);
      canvas.height = Math.round(size.y * ratio);
      canvas.style.width = `${size.x}px`;
      canvas.style.height = `${size.y}px`;
    }
    L.DomUtil.setPosition(canvas, map.containerPointToLayerPoint([0, 0]));
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, size.x, size.y);
    const perMetre = 2 ** map.getZoom();
    const step = niceStep(STEP_PX / perMetre);
    const { lng: x0, lat: y1 } = map.containerPointToLatLng([0, 0]);
    const right = (x) => Math.round((x - x0) * perMetre) + 0.5;
    const down = (y) => Math.round((y1 - y) * perMetre) + 0.5;
    context.strokeStyle = this.colours.grid;
    context.lineWidth = 1;
    context.beginPath();
    const columns = ticks(x0, x0 + size.x / perMetre, step);
    const lines = ticks(y1 - size.y / perMetre, y1, step);
    for (const x of columns) { context.moveTo(right(x), 0); context.lineTo(right(x), size.y); }
    for (const y of lines) { context.moveTo(0, down(y)); context.lineTo(size.x, down(y)); }
    context.stroke();
    this.origin(context, right(0), down(0));
    context.fillStyle = this.colours.muted;
    context.font = "10px system-ui, sans-serif";
    context.textBaseline = "top";
    context.textAlign = "left";
    for (const x of columns) context.fillText(words(x, step), right(x) + 3, 4);
    context.textBaseline = "bottom";
    for (const y of lines) if (down(y) > TOP_PX && down(y) < size.y - BOTTOM_PX) context.fillText(words(y, step), 4, down(y) - 2);
  },

  /** Axes of the map frame: x and y, a few centimetres long on the screen. */
  origin(context, x, y) {
    const long = 34;
    context.strokeStyle = this.colours.muted;
    context.fillStyle = this.colours.muted;
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(x, y - long); context.lineTo(x, y); context.lineTo(x + long, y);
    context.moveTo(x - 3, y - long + 5); context.lineTo(x, y - long); context.lineTo(x + 3, y - long + 5);
    context.moveTo(x + long - 5, y - 3); context.lineTo(x + long, y); context.lineTo(x + long - 5, y + 3);
    context.stroke();
    context.font = "italic 11px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.textAlign = "left";
    context.fillText("x", x + long + 4, y);
    context.fillText("y", x - 3, y - long - 8);
  },
});

function ticks(first, last, step) {
  const found = [];
  for (let at = Math.ceil(first / step); at * step <= last && found.length < 100; at += 1) found.push(at * step);
  return found;
}
