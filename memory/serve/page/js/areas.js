// Areas: named parts of a map, drawn under everything else, and listed beside the legend.

import { getJson } from "./api.js";
import { byId, element } from "./dom.js";

const L = window.L;
/** Pixels of the smaller side of an area from which its name is written on the map. */
const NAMED = 30;
/** Areas with a name on the map, and areas that the list names. */
const MOST = 60;

/** The box around an area, as [x0, y0, x1, y1] in metres. */
export function boxOf({ polygon, points, radius_m: radius }) {
  const around = polygon.length ? 0 : radius ?? 0;
  const all = polygon.length ? polygon : points;
  const xs = all.map(([x]) => x);
  const ys = all.map(([, y]) => y);
  return [Math.min(...xs) - around, Math.min(...ys) - around, Math.max(...xs) + around, Math.max(...ys) + around];
}

export class Areas {
  /**
   * @param {L.Map} map
   * @param {L.Renderer} renderer
   * @param {Function} go shows a box
   */
  constructor(map, renderer, go) {
    this.layer = L.layerGroup().addTo(map);
    this.renderer = renderer;
    this.go = go;
    this.key = null;
    this.all = [];
  }

  /** Read the areas of a map anew, where the store changed; null means all maps. */
  async load(map, version) {
    const key = JSON.stringify([map, version]);
    if (this.key === key) return;
    this.key = key;
    const { areas } = await getJson("api/areas");
    // Another map may have been chosen meanwhile.
    if (this.key !== key) return;
    this.all = areas.filter((area) => (map === null || area.map_id === map) && (area.polygon.length || area.points.length));
    byId("areas").replaceChildren(...this.all.slice(0, MOST).map((area) => element("li", {},
      element("button.area", { type: "button", title: "Show this area", onclick: () => this.go(boxOf(area)) }, area.name))));
  }

  /** Draw them. */
  show(perMetre, { muted, accent }) {
    this.layer.clearLayers();
    this.all.forEach((area, at) => {
      const style = { renderer: this.renderer, color: muted, weight: 1.5, dashArray: [6, 4], fillColor: accent, fillOpacity: 0.06, interactive: false };
      if (area.polygon.length) L.polygon(area.polygon.map(([x, y]) => [y, x]), style).addTo(this.layer);
      for (const [x, y] of area.points) L.circle([y, x], { ...style, radius: area.radius_m }).addTo(this.layer);
      const [x0, y0, x1, y1] = boxOf(area);
      if (at >= MOST || Math.min(x1 - x0, y1 - y0) * perMetre < NAMED) return;
      const name = element("span", {}, area.name);
      L.tooltip({ permanent: true, direction: "center", className: "area-name", interactive: false })
        .setLatLng([(y0 + y1) / 2, (x0 + x1) / 2]).setContent(name).addTo(this.layer);
    });
  }
}
