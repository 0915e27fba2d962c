// A memory's card: what it is, why it was kept, where it comes from, what happened to it.

import { getJson, hasPath, post } from "./api.js";
import { byId, element, facts, rebuild, toast } from "./dom.js";
import { count, metres, nameOf, percent, plural, stateWords, timeElement } from "./format.js";
import { glyph } from "./glyphs.js";

const DEGREES = 180 / Math.PI;
const STATUS = { kept: "Why it was kept", merged: "It was merged into another", forgotten: "It was forgotten", undone: "It was undone" };

export class Card {
  /** @param {Object} calls `closed()`, `show(x, y)`, `forget(memory)`, `similar(id)`, `open(id)`, `changed()`, `readonly()` */
  constructor(calls) {
    this.calls = calls;
    this.place = byId("card");
    this.id = null;
    this.opener = null;
    document.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || this.id === null || document.querySelector("dialog[open]")) return;
      event.preventDefault();
      this.close();
    });
  }

  /** Show a memory; focus goes to the card and comes back when it is closed. */
  async open(id, opener = document.activeElement) {
    if (this.id === null) this.opener = opener;
    this.id = id;
    this.place.hidden = false;
    this.place.replaceChildren(this.head(`Memory #${id}`), element("p.note", { role: "status" }, "Loading …"));
    this.place.setAttribute("aria-busy", "true");
    this.place.scrollTop = 0;
    this.place.querySelector("h2").focus({ preventScroll: true });
    await this.load();
  }

  /** Read it anew, as after something happened to it. */
  async load() {
    const id = this.id;
    try {
      const found = await getJson(`api/explain/${id}`);
      const canMark = await hasPath("/api/mark");
      rebuild(this.place, () => this.id === id && this.fill(found, canMark));
    } catch (error) {
      if (this.id !== id) return;
      this.place.replaceChildren(this.head(`Memory #${id}`), element("p.problem", { role: "alert" }, error.message),
        element("button.quiet", { type: "button", onclick: () => this.load() }, "Try again"));
    } finally {
      if (this.id === id) this.place.removeAttribute("aria-busy");
    }
  }

  /** Take it away; focus goes back to where it came from, unless it is to stay. */
  close({ focus = true } = {}) {
    if (this.id === null) return;
    const id = this.id;
    this.id = null;
    this.place.hidden = true;
    this.place.replaceChildren();
    this.calls.closed();
    if (!focus) return;
    const back = this.opener?.isConnected ? this.opener : document.querySelector(`#list [data-id="${id}"]`) ?? byId("memories");
    back.focus({ preventScroll: true });
  }

  head(title, mark = null, after = []) {
    return element("header.card-head", {}, mark,
      element("h2", { id: "card-title", tabIndex: -1 }, title), ...after,
      element("button.quiet.close", { type: "button", "aria-label": "Close the card", title: "Close (Escape)", onclick: () => this.close() }, "×"));
  }

  fill(found, canMark) {
    const { memory } = found;
    const focused = this.place.contains(document.activeElement);
    const title = memory ? nameOf(memory.label, memory.kind) : `Memory #${found.id}`;
    const parts = [this.head(title, memory && glyph(memory.label, memory.state), [element("span.row-id", {}, `#${found.id}`)])];
    if (memory) {
      if (memory.caption) parts.push(element("p.caption", {}, memory.caption));
      parts.push(this.actions(memory, canMark, found.vectors.includes("default")), this.summary(memory));
    }
    parts.push(this.why(found));
    if (memory) parts.push(this.evidence(memory));
    parts.push(this.history(found));
    if (memory?.visits.length) parts.push(this.visits(memory));
    this.place.replaceChildren(...parts.filter(Boolean));
    if (focused) this.place.querySelector("h2").focus({ preventScroll: true });
  }

  actions(memory, canMark, comparable) {
    const button = (text, run, tag = "button.quiet") => element(tag, { type: "button", onclick: run }, text);
    const parts = [];
    if (memory.position) parts.push(button("Show on the map", () => this.calls.show(...memory.position)));
    // Without a vector there is nothing to compare.
    if (comparable) parts.push(button("Similar memories", () => this.calls.similar(memory.id)));
    if (!this.calls.readonly()) {
      if (canMark) parts.push(this.marking(memory));
      parts.push(button("Forget …", () => this.calls.forget(memory), "button.quiet.risky"));
    }
    return element("div.buttons", {}, parts);
  }

  marking(memory) {
    const choice = element("select", { "aria-label": "Set its state", onchange: async (event) => {
      const state = event.target.value;
      try {
        const done = await post("api/mark", { ids: [memory.id], state });
        toast(`Memory #${memory.id} is marked as ${stateWords[state]}.`, { label: "Undo", run: () => this.calls.undo(done.generation) });
        this.calls.changed();
      } catch (error) {
        event.target.value = memory.state;
        toast(error.message);
      }
    } }, Object.entries(stateWords).map(([state, word]) => element("option", { value: state }, `Is ${word}`)));
    choice.value = memory.state;
    return choice;
  }

  summary(memory) {
    const spread = memory.covariance ? Math.sqrt(Math.max(memory.covariance[0][0], memory.covariance[1][1])) : null;
    const once = memory.first_seen_ns === memory.last_seen_ns;
    return facts([
      ["State", stateWords[memory.state] + (memory.marked ? ", kept whatever its importance" : "")],
      ["Kind", memory.kind],
      memory.position ? ["x, y, z", `${memory.position.map((at) => metres(at, 2)).join(", ")} m`] : ["Place", "unknown"],
      ["Uncertainty", spread === null ? null : `± ${metres(spread, 2)} m`],
      ["Heading", !memory.position && !memory.yaw ? null : `${metres(memory.yaw * DEGREES, 0)}° from +x`],
      ["Map", memory.map_id],
      [once ? "Seen" : "Last seen", timeElement(memory.last_seen_ns / 1e9, { both: true })],
      once ? null : ["First seen", timeElement(memory.first_seen_ns / 1e9, { both: true })],
      ["Observations", count(memory.count)],
      ["Confidence", percent(memory.confidence)],
      ["Importance", memory.importance === null ? "not scored" : bar(memory.importance)],
      ["Reward", memory.reward ? String(memory.reward) : null],
    ]);
  }

  why(found) {
    const into = found.into === null ? null
      : element("button.link", { type: "button", onclick: () => this.calls.open(found.into) }, `Open memory #${found.into}`);
    const rest = Object.entries(found.parts).filter(([name]) => !["confidence", "reward", "count", "importance"].includes(name));
    return section(found.memory ? STATUS.kept : STATUS[found.status] ?? "Why", element("ul.reasons", {}, found.reasons.map((reason) => element("li", {}, reason))),
      into, rest.length ? facts(rest.map(([name, value]) => [name.replace("_m_s", ", m/s").replaceAll("_", " "), number(value)])) : null);
  }

  evidence(memory) {
    const payload = Object.keys(memory.payload).length ? JSON.stringify(memory.payload, null, 2) : null;
    const paths = memory.evidence.split("\n").filter(Boolean);
    if (!payload && !paths.length && !memory.provenance) return null;
    return section("Evidence",
      memory.provenance && element("p", {}, "Source: ", element("code", {}, memory.provenance)),
      paths.length ? element("ul.paths", {}, paths.slice(0, 50).map((path) => element("li", {}, source(path)))) : null,
      paths.length > 50 ? element("p.note", {}, `and ${count(paths.length - 50)} more`) : null,
      payload && element("pre", { tabIndex: 0, "aria-label": "Payload" }, payload));
  }

  history(found) {
    const merged = found.sources.length ? element("p.note", {}, `Merged from ${plural(found.sources.length, "memory", "memories")}: `,
      found.sources.slice(0, 20).map((id, at) => [at ? ", " : "", element("button.link", { type: "button", onclick: () => this.calls.open(id) }, `#${id}`)]),
      found.sources.length > 20 ? " …" : "") : null;
    if (!found.history.length && !merged) return null;
    return section("History", merged, element("ol.history", {}, found.history.map((entry) => element("li", {},
      element("b", {}, entry.operation), " ", timeElement(entry.time_ns / 1e9), entry.detail ? element("p", {}, entry.detail) : null))));
  }

  visits(memory) {
    const latest = [...memory.visits].reverse().slice(0, 10);
    return section("Visits", element("ol.history", {}, latest.map(([first, last, sights]) => element("li", {},
      timeElement(first / 1e9), ` for ${length((last - first) / 1e9)}, ${plural(sights, "sight")}`))),
    memory.visits.length > 10 ? element("p.note", {}, `and ${count(memory.visits.length - 10)} earlier`) : null);
  }
}

/** A source: an address of the web is a link that tells the other side nothing; a path can be copied. */
function source(path) {
  const shown = element("code", {}, path);
  const address = /^https?:\/\//i.test(path) && URL.canParse(path) ? new URL(path).href : null;
  if (address) return element("a", { href: address, target: "_blank", rel: "noopener noreferrer nofollow" }, shown);
  const copy = () => navigator.clipboard.writeText(path).then(() => toast("The path is copied."), () => toast("The browser blocked copying."));
  return [shown, " ", navigator.clipboard ? element("button.link", { type: "button", "aria-label": `Copy ${path}`, onclick: copy }, "Copy") : null];
}

const number = (value) => (Number.isInteger(value) ? count(value) : Number(value).toPrecision(3));
const length = (seconds) => (seconds < 120 ? `${metres(seconds, 0)} s` : seconds < 7200 ? `${metres(seconds / 60, 0)} min` : `${metres(seconds / 3600)} h`);

function section(title, ...children) {
  return element("section", {}, element("h3", {}, title), ...children);
}

function bar(value) {
  return element("span.meter", {}, element("meter", { min: 0, max: 1, value, "aria-label": "importance" }), ` ${metres(value, 2)}`);
}
