// The map: Leaflet on a plane in metres, drawn on a canvas.

import { cluster } from "./clusters.js";
import { count, metres } from "./format.js";
import { Grid } from "./grid.js";

const L = window.L;
/** Memories in view up to which each has its own mark. */
const SINGLE = 600;
/** Marks in view up to which labels are written beside them. */
const LABELLED = 40;
const CELL_PX = 60;

/** A round mark, perhaps with a number in it or a label beside it. */
const Mark = L.CircleMarker.extend({
  _updatePath() {
    L.CircleMarker.prototype._updatePath.call(this);
    const { text, beside, ink, halo } = this.options;
    if (this._empty() || !(text || beside)) return;
    const context = this._renderer._ctx;
    context.save();
    context.globalAlpha = this.options.textOpacity;
    context.font = `${text ? 600 : 500} 11px system-ui, sans-serif`;
    context.textBaseline = "middle";
    if (text) {
      context.textAlign = "center";
      context.fillStyle = ink;
      context.fillText(text, this._point.x, this._point.y + 0.5);
    } else {
      context.textAlign = "left";
      context.lineWidth = 3;
      context.lineJoin = "round";
      context.strokeStyle = halo;
      context.fillStyle = ink;
      const x = this._point.x + this._radius + 4;
      context.strokeText(beside, x, this._point.y + 0.5);
      context.fillText(beside, x, this._point.y + 0.5);
    }
    context.restore();
  },
});

/** Colours of the theme as the canvas needs them. */
export function colours() {
  const probe = document.createElement("span");
  document.body.append(probe);
  const found = {};
  for (const name of ["accent", "text", "muted", "line", "surface", "ground", "on-accent", "grid"]) {
    probe.style.color = `var(--${name})`;
    found[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return found;
}

export class MemoryMap {
  /**
   * @param {HTMLElement} place
   * @param {Object} calls `moved()` after the view changed, `open(row)` for a memory,
   *     `gather(box)` for a mark that cannot be taken apart by going closer
   */
  constructor(place, calls) {
    this.calls = calls;
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.map = L.map(place, {
      crs: L.CRS.Simple, center: [0, 0], zoom: 3, minZoom: -12, maxZoom: 9, zoomSnap: 0.25, zoomDelta: 1,
      wheelPxPerZoomLevel: 90, attributionControl: false, zoomControl: false, preferCanvas: true,
      zoomAnimation: !still, fadeAnimation: !still, inertia: !still, markerZoomAnimation: false,
    });
    this.still = still;
    L.control.zoom({ position: "topright" }).addTo(this.map);
    L.control.scale({ position: "bottomleft", imperial: false, maxWidth: 120 }).addTo(this.map);
    this.colours = colours();
    this.grid = new Grid(this.colours).addTo(this.map);
    this.renderer = L.canvas({ padding: 0.25, tolerance: 6 });
    this.marks = L.layerGroup().addTo(this.map);
    this.ring = L.layerGroup().addTo(this.map);
    this.map.on("moveend", () => this.calls.moved());
    this.shown = [];
  }

  /** [x0, y0, x1, y1] in metres. */
  get view() {
    const bounds = this.map.getBounds();
    return [bounds.getWest(), bounds.getSouth(), bounds.getEast(), bounds.getNorth()];
  }

  /** x, y in metres. */
  get middle() {
    const { lat, lng } = this.map.getCenter();
    return [lng, lat];
  }

  /** Middle and zoom, to come back to. */
  get place() {
    return [this.map.getCenter(), this.map.getZoom()];
  }

  set place([middle, zoom]) {
    this.map.setView(middle, zoom, { animate: false });
  }

  /** Show a box, with something around it. */
  fit(box, { closest = 6, animate = !this.still } = {}) {
    if (!box) return;
    this.map.fitBounds([[box[1], box[0]], [box[3], box[2]]], { padding: [36, 36], maxZoom: closest, animate });
  }

  /** Bring a point into the view, where it is not there yet. */
  reveal(x, y) {
    if (!this.map.getBounds().pad(-0.1).contains([y, x])) this.map.panTo([y, x], { animate: !this.still });
  }

  /** The size of the map may have changed. */
  resized() {
    this.map.invalidateSize({ animate: false });
  }

  /** The theme changed. */
  recolour() {
    this.colours = colours();
    this.grid.recolour(this.colours);
  }

  /**
   * Draw rows.
   * @param {import("./columns.js").Columns} columns
   * @param {Uint32Array} rows in view, with a margin
   * @param {Set<number>|null} found ids of the answer, beside which others fade
   * @param {number|null} selected id
   */
  draw(columns, rows, found, selected) {
    const perMetre = 2 ** this.map.getZoom();
    const few = rows.length <= SINGLE;
    const cell = (few ? 8 : CELL_PX) / perMetre;
    const others = found ? rows.filter((row) => !found.has(columns.rows.id[row])) : rows;
    const wanted = found ? rows.filter((row) => found.has(columns.rows.id[row])) : [];
    const marks = cluster(columns, others, cell, (few ? 7 : 46) / perMetre);
    this.marks.clearLayers();
    const singles = marks.filter((mark) => mark.size === 1).length + wanted.length;
    const labelled = singles <= LABELLED;
    for (const mark of marks) this.addMark(columns, mark, { faded: Boolean(found), labelled: labelled && !found });
    for (const row of wanted.slice(0, 2000)) {
      const { x, y } = columns.rows;
      this.addMark(columns, { x: x[row], y: y[row], size: 1, row }, { faded: false, labelled: wanted.length <= LABELLED, large: true });
    }
    this.shown = marks;
    this.select(columns, selected);
  }

  addMark(columns, mark, { faded, labelled, large = false }) {
    const { accent, muted, surface, text } = this.colours;
    const alone = mark.size === 1;
    const options = { renderer: this.renderer, halo: surface, textOpacity: faded ? 0.5 : 1, bubblingMouseEvents: false };
    if (alone) {
      const state = columns.text("state", mark.row);
      Object.assign(options, stateStyle(state, this.colours, faded), { radius: large ? 7 : 5 });
      if (labelled) Object.assign(options, { beside: columns.text("label", mark.row), ink: state === "gone" ? muted : text });
    } else {
      Object.assign(options, {
        radius: Math.min(9 + 2.6 * Math.log2(mark.size), 32) * (mark.size < 10 ? 0.8 : 0.72), stroke: true, weight: 1.5, color: surface,
        opacity: faded ? 0.4 : 1, fillColor: accent, fillOpacity: faded ? 0.25 : 0.88,
        text: brief(mark.size), ink: this.colours["on-accent"],
      });
    }
    const made = new Mark([mark.y, mark.x], options);
    made.on("click", () => this.pressed(mark));
    made.on("mouseover", () => this.told(columns, mark, made));
    made.addTo(this.marks);
  }

  told(columns, mark, made) {
    const { x, y, row, size } = mark;
    const text = size === 1
      ? `${columns.text("label", row) || columns.text("kind", row)} #${columns.rows.id[row]} at ${metres(x)}, ${metres(y)} m`
      : `${count(size)} memories`;
    const shown = document.createElement("span");
    shown.textContent = text;
    made.bindTooltip(shown, { direction: "top", offset: [0, -6] }).openTooltip();
  }

  pressed(mark) {
    if (mark.size === 1) {
      this.calls.open(mark.row);
      return;
    }
    const closer = Math.min(this.map.getZoom() + 2, this.map.getMaxZoom());
    if (closer > this.map.getZoom()) this.map.setView([mark.y, mark.x], closer, { animate: !this.still });
    else this.calls.gather(mark);
  }

  /** A ring around a memory. */
  select(columns, id) {
    this.ring.clearLayers();
    const row = id === null ? -1 : columns.rowOf(id);
    if (row < 0) return;
    const { x, y } = columns.rows;
    L.circleMarker([y[row], x[row]], {
      renderer: this.renderer, radius: 11, weight: 2.5, color: this.colours.text, fill: false, interactive: false,
    }).addTo(this.ring);
  }
}

const brief = (size) => (size < 1000 ? String(size) : size < 9950 ? `${(size / 1000).toFixed(1)}k` : `${Math.round(size / 1000)}k`);

function stateStyle(state, { accent, muted, surface }, faded) {
  const opacity = faded ? 0.25 : 1;
  if (state === "gone") return { color: muted, weight: 1.5, opacity, dashArray: [2.5, 2], fillColor: surface, fillOpacity: opacity };
  if (state === "moved") return { color: accent, weight: 2, opacity, fillColor: surface, fillOpacity: opacity };
  const fillOpacity = opacity * (state === "unknown" ? 0.45 : 1);
  return { color: surface, weight: 1, opacity: faded ? 0.2 : 0.9, fillColor: accent, fillOpacity };
}
