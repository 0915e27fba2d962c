// The map: Leaflet on a plane in metres, drawn on a canvas.

import { Areas } from "./areas.js";
import { Boxes, Path } from "./boxes.js";
import { cluster } from "./clusters.js";
import { element } from "./dom.js";
import { count, metres } from "./format.js";
import { COLOURS, glyphOf } from "./glyphs.js";
import { Grid } from "./grid.js";
import { Mark } from "./marks.js";

const L = window.L;
/** Memories in view up to which each has its own mark. */
const SINGLE = 600;
/** Marks in view up to which labels are written beside them. */
const LABELLED = 40;
const CELL_PX = 60;

/** Colours of the theme as the canvas needs them. */
export function colours() {
  const probe = document.createElement("span");
  document.body.append(probe);
  const found = {};
  const classes = Array.from({ length: COLOURS }, (_, at) => `class-${at}`);
  for (const name of ["accent", "text", "muted", "line", "surface", "ground", "on-accent", "grid", ...classes]) {
    probe.style.color = `var(--${name})`;
    found[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return found;
}

export class MemoryMap {
  /**
   * @param {HTMLElement} place
   * @param {Object} calls `moved()` after the view changed, `open(row)` for a memory, `gather(box)` for a mark
   *     that cannot be taken apart by going closer, `map()` that is looked at, `failed(error)`
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
    // On a canvas of its own, so that marks lie above whatever comes when.
    Object.assign(this.map.createPane("under").style, { zIndex: 390, pointerEvents: "none" });
    const under = L.canvas({ padding: 0.25, pane: "under" });
    this.areas = new Areas(this.map, under, (box) => this.fit(box));
    this.path = new Path(this.map, under);
    this.boxes = new Boxes(this.map, under);
    this.marks = L.layerGroup().addTo(this.map);
    this.tip = element("p.tip", { hidden: true });
    place.after(this.tip);
    this.map.on("movestart zoomstart", () => this.untold());
    this.ring = L.layerGroup().addTo(this.map);
    this.moving = false;
    this.next = null;
    this.map.on("zoomstart", () => { this.moving = true; });
    this.map.on("moveend", () => this.arrived());
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
    this.go(() => this.map.setView(middle, zoom, { animate: false }));
  }

  /** Move the view, after a move under way: Leaflet drops what comes during a zoom, or ends at the zoom's place. */
  go(move) {
    if (this.moving) {
      this.next = move;
      return;
    }
    this.moving = true;
    move();
  }

  arrived() {
    this.moving = false;
    const { next } = this;
    this.next = null;
    if (next) this.go(next);
    else this.calls.moved();
  }

  /** Show a box, with something around it. */
  fit(box, { closest = 6, animate = !this.still } = {}) {
    if (!box) return;
    this.go(() => this.map.fitBounds([[box[1], box[0]], [box[3], box[2]]], { padding: [36, 36], maxZoom: closest, animate }));
  }

  /** Bring a point into the view, where it is not there yet; what is at no known place (NaN) moves nothing. */
  reveal(x, y) {
    if (Number.isNaN(x)) return;
    if (!this.map.getBounds().pad(-0.1).contains([y, x])) this.go(() => this.map.panTo([y, x], { animate: !this.still }));
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
    // Places are the ground that objects stand on: where there are objects, they are drawn below, small and pale.
    const isPlace = (row) => columns.text("kind", row) === "place";
    const objects = others.filter((row) => !isPlace(row));
    const places = objects.length || wanted.some((row) => !isPlace(row)) ? others.filter(isPlace) : [];
    const ground = cluster(columns, places, cell, (few ? 7 : 46) / perMetre);
    const marks = cluster(columns, places.length ? objects : others, cell, (few ? 7 : 46) / perMetre);
    this.marks.clearLayers();
    const singles = marks.filter((mark) => mark.size === 1).length + wanted.length;
    const labelled = singles <= LABELLED;
    for (const mark of ground) this.addMark(columns, mark, { faded: true, labelled: false, small: true });
    for (const mark of marks) this.addMark(columns, mark, { faded: Boolean(found), labelled: labelled && !found });
    for (const row of wanted.slice(0, 2000)) {
      const { x, y } = columns.rows;
      this.addMark(columns, { x: x[row], y: y[row], size: 1, row }, { faded: false, labelled: wanted.length <= LABELLED, large: true });
    }
    this.areas.show(perMetre, this.colours);
    this.shown = [...marks, ...ground];
    this.select(columns, selected);
    const near = this.boxes.wanted(perMetre, rows);
    this.boxes.show(columns, near ? rows : [], this.view, perMetre, this.calls.map(), (all, row) => this.colourOf(all, row)).catch(this.calls.failed);
  }

  /** Draw the robot's path within a time. */
  async drawPath(version, range) {
    await this.path.load(this.calls.map(), version);
    this.path.show(range, this.colours.muted);
  }

  /** Draw the named areas of the map that is looked at. */
  async drawAreas(version) {
    await this.areas.load(this.calls.map(), version);
    this.areas.show(2 ** this.map.getZoom(), this.colours);
  }

  addMark(columns, mark, { faded, labelled, large = false, small = false }) {
    const { muted, surface, text } = this.colours;
    const alone = mark.size === 1;
    const options = { renderer: this.renderer, halo: surface, textOpacity: faded ? 0.5 : 1, bubblingMouseEvents: false };
    if (alone) {
      const state = columns.text("state", mark.row);
      const { shape } = glyphOf(columns.text("label", mark.row));
      Object.assign(options, stateStyle(state, this.colourOf(columns, mark.row), this.colours, faded), { radius: large ? 7 : small ? 3 : 5, shape });
      if (labelled) Object.assign(options, { beside: columns.text("label", mark.row), ink: state === "gone" ? muted : text });
    } else {
      Object.assign(options, {
        radius: Math.min(9 + 2.6 * Math.log2(mark.size), 32) * (mark.size < 10 ? 0.8 : 0.72), stroke: true, weight: 1.5, color: surface,
        opacity: faded ? 0.4 : 1, fillColor: mark.mixed ? this.colours.accent : this.colourOf(columns, mark.row),
        fillOpacity: faded ? 0.25 : 0.88, text: brief(mark.size), ink: this.colours["on-accent"],
      });
      if (small) Object.assign(options, { radius: 6, text: "" });
    }
    const made = new Mark([mark.y, mark.x], options);
    made.on("click", () => this.pressed(mark));
    made.on("mouseover", () => this.told(columns, mark));
    made.on("mouseout", () => this.untold());
    made.addTo(this.marks);
  }

  /** The colour of the class of a row. */
  colourOf(columns, row) {
    return this.colours[`class-${glyphOf(columns.text("label", row)).colour}`];
  }

  /** Say what a mark is: above everything that lies on the map, and never beyond its edge. */
  told(columns, mark) {
    const { x, y, row, size } = mark;
    this.tip.textContent = size === 1
      ? `${columns.text("label", row) || columns.text("kind", row)} #${columns.rows.id[row]} at ${metres(x)}, ${metres(y)} m`
      : `${count(size)} memories`;
    this.tip.hidden = false;
    const at = this.map.latLngToContainerPoint([y, x]);
    const space = this.map.getSize();
    const { offsetWidth: wide, offsetHeight: tall } = this.tip;
    const left = Math.max(4, Math.min(at.x - wide / 2, space.x - wide - 4));
    const top = at.y - tall - 12;
    this.tip.style.left = `${left}px`;
    this.tip.style.top = `${top < 4 ? at.y + 14 : top}px`;
  }

  untold() {
    this.tip.hidden = true;
  }

  pressed(mark) {
    if (mark.size === 1) {
      this.calls.open(mark.row);
      return;
    }
    const closer = Math.min(this.map.getZoom() + 2, this.map.getMaxZoom());
    if (closer > this.map.getZoom()) this.go(() => this.map.setView([mark.y, mark.x], closer, { animate: !this.still }));
    else this.calls.gather(mark);
  }

  /** A ring around a memory, where it has a place. */
  select(columns, id) {
    this.ring.clearLayers();
    const row = id === null ? -1 : columns.rowOf(id);
    const { x, y } = columns.rows;
    if (row < 0 || Number.isNaN(x[row])) return;
    L.circleMarker([y[row], x[row]], {
      renderer: this.renderer, radius: 11, weight: 2.5, color: this.colours.text, fill: false, interactive: false,
    }).addTo(this.ring);
  }
}

const brief = (size) => (size < 1000 ? String(size) : size < 9950 ? `${(size / 1000).toFixed(1)}k` : `${Math.round(size / 1000)}k`);

function stateStyle(state, colour, { surface }, faded) {
  const opacity = faded ? 0.25 : 1;
  if (state === "gone") return { color: colour, weight: 1.5, opacity, dashArray: [2.5, 2], fillColor: surface, fillOpacity: opacity };
  if (state === "moved") return { color: colour, weight: 2, opacity, fillColor: surface, fillOpacity: opacity };
  const fillOpacity = opacity * (state === "unknown" ? 0.45 : 1);
  return { color: surface, weight: 1, opacity: faded ? 0.2 : 0.9, fillColor: colour, fillOpacity };
}
