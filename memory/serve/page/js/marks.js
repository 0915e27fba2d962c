// Marks on the map's canvas: a shape of a class, perhaps with a number in it or a label beside it.

import { corners } from "./glyphs.js";

const L = window.L;
const FONT = "11px system-ui, sans-serif";
const GAP = 4;
const measuring = document.createElement("canvas").getContext("2d");
measuring.font = `500 ${FONT}`;

/** A mark of a memory, or of several. */
export const Mark = L.CircleMarker.extend({
  // What is written beside a mark is part of it: the canvas erases and draws by these bounds.
  _updateBounds() {
    L.CircleMarker.prototype._updateBounds.call(this);
    if (!this.options.beside) return;
    this._pxBounds.extend(this._point.add([this._radius + GAP + measuring.measureText(this.options.beside).width + 3, 9]));
    this._pxBounds.extend(this._point.subtract([0, 9]));
  },
  _updatePath() {
    // Outside of a drawing the canvas has other bounds, and what is written there stays.
    if (!this._renderer._drawing || this._empty()) return;
    const points = corners(this.options.shape ?? 0, this._point.x, this._point.y, this._radius);
    if (points) this.polygon(points);
    else L.CircleMarker.prototype._updatePath.call(this);
    this.write();
  },
  polygon(points) {
    const context = this._renderer._ctx;
    context.beginPath();
    points.forEach(([x, y], at) => (at ? context.lineTo(x, y) : context.moveTo(x, y)));
    context.closePath();
    this._renderer._fillStroke(context, this);
  },
  write() {
    const { text, beside, ink, halo } = this.options;
    if (!(text || beside)) return;
    const context = this._renderer._ctx;
    context.save();
    context.globalAlpha = this.options.textOpacity;
    context.font = `${text ? 600 : 500} ${FONT}`;
    context.textBaseline = "middle";
    context.fillStyle = ink;
    if (text) {
      context.textAlign = "center";
      context.fillText(text, this._point.x, this._point.y + 0.5);
    } else {
      context.textAlign = "left";
      context.lineWidth = 3;
      context.lineJoin = "round";
      context.strokeStyle = halo;
      const x = this._point.x + this._radius + GAP;
      context.strokeText(beside, x, this._point.y + 0.5);
      context.fillText(beside, x, this._point.y + 0.5);
    }
    context.restore();
  },
});
