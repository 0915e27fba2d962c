// Tiers, sizes and health of the store.

import { getJson } from "./api.js";
import { byId, element, facts, toast } from "./dom.js";
import { bytes, count, plural, stateWords, timeElement } from "./format.js";

export class Health {
  constructor() {
    this.stats = null;
    this.busy = false;
  }

  /** Nothing may be changed. */
  get readonly() {
    return this.stats?.readonly ?? false;
  }

  /** Read the numbers; with `check` the files are looked at. */
  async load({ check = false } = {}) {
    this.stats = await getJson(`api/stats${check ? "?check=true" : ""}`);
    this.show();
  }

  show() {
    const { stats } = this;
    const files = stats.file_bytes + stats.log_bytes;
    byId("health").replaceChildren(
      section("Health", this.check(), facts([
        ["Service", stats.readonly ? "reading only" : "reading and writing"],
        ["Live clients", plural(stats.followers, "client")],
        ["Operations", count(stats.generation)],
      ])),
      section("Memories", facts([
        ["Total", count(stats.memories)],
        ...sorted(stats.by_kind).map(([name, size]) => [name, count(size)]),
        ...(Object.keys(stats.by_map).length > 1 ? sorted(stats.by_map).map(([name, size]) => [`map ${name}`, count(size)]) : []),
        ...sorted(stats.by_state).map(([name, size]) => [stateWords[name] ?? name, count(size)]),
        ["First", stats.first_time_ns === null ? null : timeElement(stats.first_time_ns / 1e9, { both: true })],
        ["Last", stats.last_time_ns === null ? null : timeElement(stats.last_time_ns / 1e9, { both: true })],
      ])),
      section("Tiers", ...this.tiers()),
      section("Files", facts([
        ["Total", bytes(files)],
        ["Database", bytes(stats.file_bytes)],
        ["Free space", bytes(stats.free_bytes)],
        ["Write-ahead log", bytes(stats.log_bytes)],
      ])),
    );
  }

  check() {
    const known = this.stats.check;
    const button = element("button.quiet", { type: "button", disabled: this.busy, onclick: () => this.checkNow() }, this.busy ? "Checking …" : "Check the files");
    const said = !known ? element("p", {}, "The files have not been checked since the service started.")
      : known.ok ? element("p.good", {}, `No damage in ${plural(known.memories, "memory", "memories")}, `, timeElement(known.time_ns / 1e9, { short: true }), ".")
        : element("div.problem", { role: "alert" }, element("p", {}, `${plural(known.problems.length, "problem")}:`),
          element("ul", {}, known.problems.slice(0, 20).map((problem) => element("li", {}, problem))));
    return element("div.check-row", {}, said, button);
  }

  async checkNow() {
    this.busy = true;
    this.show();
    try {
      await this.load({ check: true });
    } catch (error) {
      toast(error.message);
    }
    this.busy = false;
    this.show();
    byId("health").querySelector("button")?.focus();
  }

  tiers() {
    const entries = Object.entries(this.stats.tiers);
    const waiting = Object.entries(this.stats.vectors).filter(([name, size]) => size && !(name in this.stats.tiers));
    if (!entries.length) {
      const said = waiting.map(([name, size]) => `${plural(size, "vector")} of ${name}, read into memory with the first similarity search.`);
      return [element("p.note", {}, said.join(" ") || "No vectors are stored.")];
    }
    return entries.map(([name, tier]) => {
      const all = Math.max(1, tier.recent + tier.long_term);
      return element("div.tier", {},
        element("h4", {}, name, element("span.note", {}, ` ${count(this.stats.encoders[name] ?? this.stats.dim)} numbers a vector`)),
        element("meter", { min: 0, max: all, value: tier.long_term, "aria-label": `share of ${name} in the long-term tier` }),
        facts([
          ["Recent", plural(tier.recent, "vector")],
          ["Long-term", `${plural(tier.long_term, "vector")}${tier.index ? ` (${tier.index})` : ""}`],
          ["Waiting to move", tier.waiting ? count(tier.waiting) : null],
          ["In memory", bytes(tier.bytes)],
          ...(tier.reached ?? []).map((one) => [`Found at ${one.aim ?? one.recall_aim ?? "its aim"}`, reached(one)]),
        ]));
    });
  }
}

const sorted = (counts) => Object.entries(counts).sort((a, b) => b[1] - a[1]);
const reached = (one) => Object.entries(one).filter(([, value]) => typeof value === "number").map(([name, value]) => `${name.replaceAll("_", " ")} ${Number(value.toPrecision(3))}`).join(", ");

function section(title, ...children) {
  return element("section", {}, element("h3", {}, title), ...children);
}
