// Filters by label, kind, state and map.

import { byId, element, rebuild } from "./dom.js";
import { count, stateWords } from "./format.js";

const MOST_LABELS = 300;

export class Filters {
  /** @param {Function} changed called when what passes may be another; `map` is true for another map */
  constructor(changed) {
    this.changed = changed;
    this.map = null;
    this.chosen = { kind: new Set(), state: new Set(), label: new Set() };
    this.find = byId("filter-label-find");
    this.find.addEventListener("input", () => this.showLabels());
    byId("filter-map").addEventListener("change", (event) => {
      this.map = event.target.value;
      this.tell(true);
    });
    byId("filter-marked").addEventListener("change", () => this.tell());
    byId("filters-clear").addEventListener("click", () => this.clear());
    byId("filters").open = matchMedia("(min-width: 60rem)").matches && matchMedia("(min-height: 56rem)").matches;
  }

  /** Everything passes again, but the map stays. */
  clear() {
    for (const chosen of Object.values(this.chosen)) chosen.clear();
    byId("filter-marked").checked = false;
    for (const chip of byId("filters").querySelectorAll("[aria-pressed]")) chip.setAttribute("aria-pressed", "false");
    this.tell();
  }

  /** For Columns.passing. */
  get wanted() {
    const some = (set) => (set.size ? set : null);
    const { kind, state, label } = this.chosen;
    return { map: this.map, kinds: some(kind), states: some(state), labels: some(label), marked: byId("filter-marked").checked };
  }

  /** How many filters are set. */
  get active() {
    const { kind, state, label } = this.chosen;
    return kind.size + state.size + label.size + (byId("filter-marked").checked ? 1 : 0);
  }

  /** Look at what the columns hold. */
  update(columns) {
    const maps = columns.names.maps.map((name, at) => [name, columns.mapCounts[at]]).filter(([, size]) => size)
      .sort((a, b) => b[1] - a[1]);
    if (!maps.some(([name]) => name === this.map)) this.map = maps.length ? maps[0][0] : null;
    const choice = byId("filter-map");
    choice.replaceChildren(...maps.map(([name, size]) => element("option", { value: name }, `${name || "(no name)"} (${count(size)})`)));
    if (this.map !== null) choice.value = this.map;
    byId("filter-map-row").hidden = maps.length < 2;
    const here = columns.passing({ map: this.map });
    this.chips("kind", columns, here, byId("filter-kinds"), (name) => name);
    this.chips("state", columns, here, byId("filter-states"), (name) => stateWords[name]);
    const sizes = columns.counts("label", here);
    this.labels = columns.names.labels.map((name, at) => [name, sizes[at]])
      .filter(([name, size]) => size || this.chosen.label.has(name)).sort((a, b) => b[1] - a[1]);
    this.find.hidden = this.labels.length <= 12;
    this.showLabels();
    this.badge();
  }

  chips(column, columns, rows, place, words) {
    const sizes = columns.counts(column, rows);
    const names = columns.names[`${column}s`];
    this.fillChips(place, names.map((name, at) => [name, sizes[at]]), column, words);
  }

  showLabels() {
    const words = this.find.hidden ? "" : this.find.value.trim().toLowerCase();
    const shown = (this.labels ?? []).filter(([name]) => name.toLowerCase().includes(words)).slice(0, MOST_LABELS);
    this.fillChips(byId("filter-labels"), shown, "label", (name) => name || "no label");
  }

  fillChips(place, entries, column, words) {
    const key = JSON.stringify([entries, [...this.chosen[column]]]);
    if (place.dataset.key === key) return;
    rebuild(place, () => {
      const at = [...place.children].indexOf(document.activeElement);
      place.dataset.key = key;
      place.replaceChildren(...entries.map(([name, size]) => element("button.chip", {
        type: "button", "aria-pressed": String(this.chosen[column].has(name)),
        onclick: (event) => this.toggle(column, name, event.currentTarget),
      }, words(name), " ", element("span.chip-count", {}, count(size)))));
      if (at >= 0) place.children[at]?.focus();
    });
  }

  toggle(column, name, chip) {
    const chosen = this.chosen[column];
    if (!chosen.delete(name)) chosen.add(name);
    chip.setAttribute("aria-pressed", String(chosen.has(name)));
    chip.parentElement.dataset.key = "";
    this.tell();
  }

  badge() {
    const badge = byId("filters-active");
    badge.hidden = !this.active;
    badge.textContent = `${this.active} set`;
  }

  tell(map = false) {
    this.badge();
    this.changed({ map });
  }
}
