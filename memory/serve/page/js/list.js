// The list of memories: what the map shows, or what an answer found.

import { byId, element, rebuild } from "./dom.js";
import { brief, count, nameOf, placeWords, stateWords, time, times } from "./format.js";
import { glyph } from "./glyphs.js";

const FIRST = 40;
const STEP = 100;

export class List {
  /** @param {Function} open called with an id and the button that was pressed */
  constructor(open) {
    this.open = open;
    this.place = byId("list");
    this.more = byId("more");
    this.limit = FIRST;
    this.more.addEventListener("click", () => {
      const before = this.place.children.length;
      this.limit += STEP;
      this.refill?.();
      this.place.children[before]?.querySelector("button")?.focus();
    });
  }

  /** Start at the top again. */
  reset() {
    this.limit = FIRST;
  }

  /** Entries [{id, label, kind, state, x, y, last, count, marked, role}], of so many; `selected()` is the id of the card. */
  fill(entries, total, { title, empty, selected, refill }) {
    this.refill = refill;
    byId("count").textContent = title;
    this.more.hidden = entries.length >= total;
    this.more.textContent = `Show more (${count(total - entries.length)} left)`;
    rebuild(this.place, () => {
      const focused = this.place.contains(document.activeElement) ? document.activeElement.dataset.id : null;
      this.place.replaceChildren(...entries.map((entry) => this.row(entry, selected())));
      if (!entries.length) this.place.append(element("li.empty", {}, empty));
      if (focused) this.place.querySelector(`[data-id="${focused}"]`)?.focus({ preventScroll: true });
    });
  }

  row(entry, selected) {
    const { id, label, kind, state, x, y, last, count: sights, marked, role } = entry;
    const button = element("button.row", {
      type: "button", "data-id": id, "aria-current": id === selected ? "true" : null,
      onclick: (event) => this.open(id, event.currentTarget),
    },
    glyph(label, state),
    element("span.row-main", {},
      element("span.row-name", {}, nameOf(label, kind)), " ", element("span.row-id", {}, `#${id}`),
      role && element("span.tag", {}, role), kind !== "object" && label && element("span.tag", {}, kind),
      marked && element("span.tag", {}, "kept")),
    element("span.row-time", { title: `${time(last)} UTC` }, brief(last)),
    element("span.row-more", {}, `${placeWords(x, y)} · seen ${times(sights)}`,
      state === "present" ? null : ` · ${stateWords[state]}`));
    return element("li", {}, button);
  }

  /** Mark the memory whose card is open. */
  select(id) {
    for (const button of this.place.querySelectorAll("[aria-current]")) button.removeAttribute("aria-current");
    if (id !== null) this.place.querySelector(`[data-id="${id}"]`)?.setAttribute("aria-current", "true");
  }
}

/** An entry of a row of the columns. */
export function entryOf(columns, row) {
  const { id, x, y, last, count: counts, marked } = columns.rows;
  return {
    id: id[row], x: x[row], y: y[row], last: last[row], count: counts[row], marked: marked[row] === 1,
    label: columns.text("label", row), kind: columns.text("kind", row), state: columns.text("state", row),
  };
}

/** An entry of a memory of an answer. */
export function entryOfMemory(memory, role = null) {
  const [x, y] = memory.position ?? [NaN, NaN];
  return { ...memory, x, y, role, last: memory.last_seen_ns / 1e9 };
}
