// What was done to the store, and taking it back.

import { getJson, post } from "./api.js";
import { byId, element, rebuild, toast } from "./dom.js";
import { plural, timeElement } from "./format.js";

const PORTION = 50;
const WORDS = {
  add: "Added", observe: "Observed", seen: "Seen again", merge: "Merged", forget: "Forgot", remove: "Forgot",
  mark: "Marked", undo: "Undid", repose: "Moved", erase: "Erased for good", update: "Changed",
  import: "Imported", sync: "Received", align: "Aligned", repair: "Repaired", lost: "Lost",
};
/** Operations that make memories go away. */
const FORGETTING = new Set(["forget", "remove"]);
/** Operations that nothing takes back. */
const FINAL = new Set(["seen", "erase"]);

/** What an operation did, in a few words. */
function what({ operation, undoes, detail, ids_count: size }) {
  if (operation === "area" && detail.name !== undefined) return `${detail.removed ? "Removed" : "Set"} area ${detail.name}`;
  if (operation === "trust" && detail.robot !== undefined) return `Set the trust of ${detail.robot} to ${detail.trust}`;
  // The memory that a merge made is no part of what was merged.
  const merged = operation === "merge" ? detail.sources?.length : undefined;
  return `${WORDS[operation] ?? operation} ${undoes ? `operation ${undoes}` : plural(merged ?? size, "memory", "memories")}`;
}

export class Activity {
  /** @param {Object} calls `changed()` after something was undone, `readonly()` */
  constructor(calls) {
    this.calls = calls;
    this.entries = [];
    this.last = null;
    byId("undo-last").addEventListener("click", () => this.last && this.undo(this.last.generation));
    byId("log-more").addEventListener("click", () => this.earlier());
  }

  /** Read the latest operations. */
  async load() {
    const { operations } = await getJson(`api/log?limit=${PORTION}`);
    this.entries = operations.reverse();
    await this.findLast();
    this.show();
  }

  async earlier() {
    const first = this.entries.at(-1)?.generation ?? 1;
    try {
      const { operations } = await getJson(`api/log?limit=${PORTION}&before=${first}`);
      this.entries.push(...operations.reverse());
      this.show();
    } catch (error) {
      toast(error.message);
    }
  }

  /** The last forgetting that still stands, perhaps beyond what is shown. */
  async findLast() {
    let entries = this.entries;
    this.last = null;
    for (let portions = 0; entries.length && portions < 10; portions += 1) {
      this.last = entries.find((entry) => FORGETTING.has(entry.operation) && !entry.undone) ?? null;
      const first = entries.at(-1).generation;
      if (this.last || first <= 1) return;
      entries = (await getJson(`api/log?limit=1000&before=${first}`)).operations.reverse();
    }
  }

  show() {
    const writable = !this.calls.readonly();
    byId("undo-last").disabled = !this.last || !writable;
    byId("undo-last-what").replaceChildren(...(!writable ? ["The store is read-only."] : this.last
      ? [`${what(this.last)}, `, timeElement(this.last.time_ns / 1e9, { short: true }), this.last.detail.reason ? `: ${this.last.detail.reason}` : ""]
      : ["There is nothing to undo."]));
    const rows = this.entries.map((entry) => this.row(entry, writable));
    rebuild(byId("log"), () => byId("log").replaceChildren(...(rows.length ? rows : [element("li.empty", {}, "No operations yet.")])));
    byId("log-more").hidden = !this.entries.length || this.entries.at(-1).generation <= 1;
  }

  row(entry, writable) {
    const undo = element("button.quiet", {
      type: "button", "aria-label": `Undo operation ${entry.generation}: ${what(entry)}`, onclick: () => this.undo(entry.generation),
    }, "Undo");
    return element("li.log-row", { "data-undone": String(entry.undone) },
      element("span.log-number", {}, String(entry.generation)),
      element("div.log-what", {}, what(entry),
        element("p.note", {}, timeElement(entry.time_ns / 1e9, { short: true }), entry.detail.reason ? ` · ${entry.detail.reason}` : "")),
      entry.undone ? element("span.tag", {}, "undone") : writable && !FINAL.has(entry.operation) ? undo : null);
  }

  /** Take an operation back. */
  async undo(generation) {
    try {
      const done = await post("api/undo", { generation });
      toast(`Operation ${generation} was undone.`, { label: "Redo", run: () => this.undo(done.generation) });
      this.calls.changed();
    } catch (error) {
      toast(error.status === 409 ? `Operation ${generation} cannot be undone: ${error.message}` : error.message);
    }
  }
}
