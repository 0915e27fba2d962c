// Boxes of what is near enough to be seen as one, where its payload says how large it is; and the robot's path.

import { getJson } from "./api.js";

const L = window.L;
/** Pixels of a metre from which boxes are drawn, and memories in view up to which they are asked for. */
const PIXELS = 5;
const MOST = 200;

/** Corners [[y, x], ...] of a memory's box in metres, the middle of its front last; null where it has no place or no size. */
export function footprint({ position, yaw, payload }) {
  const size = payload?.size_m;
  if (!position || !Array.isArray(size) || size.length < 2 || !size.slice(0, 2).every((side) => Number.isFinite(side) && side > 0)) return null;
  const [x, y] = position;
  const [length, width] = size;
  const [cos, sin] = [Math.cos(yaw), Math.sin(yaw)];
  return [[-1, -1], [1, -1], [1, 1], [-1, 1], [1, 0]].map(([ahead, left]) => {
    const [a, b] = [(ahead * length) / 2, (left * width) / 2];
    return [y + a * sin + b * cos, x + a * cos - b * sin];
  });
}

export class Boxes {
  /**
   * @param {L.Map} map
   * @param {L.Renderer} renderer
   */
  constructor(map, renderer) {
    this.layer = L.layerGroup().addTo(map);
    this.renderer = renderer;
    this.known = new Map();
    this.version = null;
    this.asked = 0;
  }

  /** Whether boxes are large enough to be seen, and few enough. */
  wanted(perMetre, rows) {
    return perMetre >= PIXELS && rows.length > 0 && rows.length <= MOST;
  }

  /** Draw the boxes of the memories of rows; those that are not known are asked for. */
  async show(columns, rows, view, perMetre, map, colourOf) {
    this.asked += 1;
    const asked = this.asked;
    if (this.version !== columns.version) {
      this.version = columns.version;
      this.known.clear();
    }
    this.layer.clearLayers();
    if (!this.wanted(perMetre, rows)) return;
    const ids = Array.from(rows, (row) => columns.rows.id[row]);
    if (ids.some((id) => !this.known.has(id))) {
      const where = new URLSearchParams({ box: view.join(","), limit: String(2 * MOST) });
      if (map !== null) where.set("map_id", map);
      const { memories } = await getJson(`api/memories?${where}`);
      for (const memory of memories) this.known.set(memory.id, footprint(memory));
      for (const id of ids) if (!this.known.has(id)) this.known.set(id, null);
      // The view may have moved on meanwhile.
      if (asked !== this.asked) return;
    }
    this.layer.clearLayers();
    rows.forEach((row) => {
      const corners = this.known.get(columns.rows.id[row]);
      if (!corners) return;
      const front = corners[4];
      const middle = [columns.rows.y[row], columns.rows.x[row]];
      const style = { renderer: this.renderer, color: colourOf(columns, row), weight: 1.5, interactive: false };
      L.polygon(corners.slice(0, 4), { ...style, fillOpacity: 0.12, className: "box" }).addTo(this.layer);
      L.polyline([middle, front], style).addTo(this.layer);
    });
  }
}

export class Path {
  /** Where the robot was, as a line under everything else. */
  constructor(map, renderer) {
    this.layer = L.layerGroup().addTo(map);
    this.renderer = renderer;
    this.key = null;
    this.parts = [];
  }

  /** Read the path of a map anew, where the store changed. */
  async load(map, version) {
    const key = JSON.stringify([map, version]);
    if (this.key === key) return;
    this.key = key;
    const where = map === null ? "" : `?${new URLSearchParams({ map_id: map })}`;
    this.parts = (await getJson(`api/path${where}`)).parts;
  }

  /** Draw what of it lies within a time, in seconds. */
  show([from, to], colour) {
    this.layer.clearLayers();
    for (const part of this.parts) {
      const points = part.filter(([at]) => at / 1e9 >= from && at / 1e9 <= to).map(([, x, y]) => [y, x]);
      if (points.length > 1) L.polyline(points, { renderer: this.renderer, color: colour, weight: 2, opacity: 0.7, dashArray: [1, 5], interactive: false }).addTo(this.layer);
    }
  }
}
