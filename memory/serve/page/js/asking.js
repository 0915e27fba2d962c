// Questions, and what was understood of them.

import { post } from "./api.js";
import { byId } from "./dom.js";
import { metres, time } from "./format.js";

const QUESTIONS = {
  last_seen: "where something was last seen", first_seen: "when something was first seen", near: "what is near",
  between: "what was between two times", new_between: "what was seen for the first time", changed_since: "what changed", how_often: "how often something was seen",
  how_many: "how many there are",
  left: "when something left", still_there: "whether something is still there", summarise: "a summary",
  similar_situations: "what was similar",
  seen_before: "whether it was seen before", been_here: "whether the robot was here before",
  pose_to: "where to drive to", search: "a search for words", ranked: "which one is the first by a measure",
  select: "which objects meet the conditions", several: "several questions",
};

/** Questions that are answered with a number. */
const COUNTS = new Set(["how_many", "how_often"]);

/** A list of an answer; some answers have a number by the same name. */
const many = (value) => (Array.isArray(value) ? value : []);

/** Memories of an answer with what they are in it: [[memory, role], ...], each once. */
export function memoriesOf(parts) {
  const found = new Map();
  const take = (memory, role = null) => {
    if (memory && !found.has(memory.id)) found.set(memory.id, [memory, role]);
  };
  take(parts.memory);
  take(parts.moved_to, "moved to");
  for (const hit of many(parts.hits)) {
    take(hit.memory, hit.parts?.distance_m === undefined ? null : `${metres(hit.parts.distance_m)} m away`);
  }
  for (const memory of many(parts.memories)) take(memory);
  for (const { memory } of [...many(parts.first), ...many(parts.following)]) take(memory);
  const changed = parts.changed ?? parts;
  for (const role of ["new", "gone", "moved"]) for (const memory of many(changed[role])) take(memory, role);
  for (const memory of many(parts.important)) take(memory, "important");
  for (const answer of many(parts.answers)) for (const [memory, role] of memoriesOf(answer)) take(memory, role);
  return [...found.values()];
}

/** How a question was understood, in words. */
export function understoodWords({ question, what, near, beside, radius_m: radius, between, since, map_id: map }) {
  const parts = [QUESTIONS[question] ?? question];
  if (what !== undefined) parts.push(typeof what === "number" ? `memory ${what}` : `“${what}”`);
  if (near) parts.push(`within ${metres(radius ?? 0)} m of (${near.slice(0, 2).map((value) => metres(value)).join(", ")})`);
  if (beside !== undefined) parts.push(`where ${typeof beside === "number" ? `memory ${beside}` : `“${beside}”`} is`);
  const end = (at) => (at / 1e9 < -9e9 ? "the beginning" : at / 1e9 > 9e9 ? "now" : `${time(at / 1e9, { short: true })} UTC`);
  if (between) parts.push(`from ${end(between[0])} to ${end(between[1])}`);
  if (since !== undefined) parts.push(`since ${end(since)}`);
  if (map !== undefined) parts.push(`in map ${map}`);
  return `Understood as ${parts.join(", ")}.`;
}

export class Asking {
  /** @param {Object} calls `asked()`, `answered(pairs, question)`, `cleared()`, `failed(error)`, `map()`, `last()` */
  constructor(calls) {
    this.calls = calls;
    this.box = byId("question");
    this.running = null;
    byId("ask").addEventListener("submit", (event) => {
      event.preventDefault();
      const text = this.box.value.trim();
      if (text) this.ask({ question: text });
      else this.clear();
    });
    byId("answer-clear").addEventListener("click", () => {
      this.clear();
      this.box.value = "";
      this.box.focus();
    });
  }

  /** Put a question: {question} in words, or by name with {what}. */
  async ask(question) {
    this.running?.abort();
    this.calls.asked();
    const running = (this.running = new AbortController());
    const place = byId("answer");
    place.hidden = false;
    place.setAttribute("aria-busy", "true");
    byId("answer-text").textContent = "Asking …";
    byId("answer-understood").textContent = "";
    const body = { ...question, k: 50 };
    if (this.calls.map() !== null) body.map_id = this.calls.map();
    const last = this.calls.last();
    if (question.what === undefined && last !== null && byId("reference-time").value === "last") body.now = last;
    try {
      const found = await post("api/ask", body, { signal: running.signal });
      byId("answer-text").textContent = found.sentence;
      byId("answer-understood").textContent = understoodWords(found.understood);
      place.dataset.failed = "";
      let pairs = memoriesOf(found.answer);
      if (!pairs.length && COUNTS.has(found.question) && found.answer.memories) pairs = await this.counted(found, running);
      this.calls.answered(pairs, found);
    } catch (error) {
      if (error.name === "AbortError") return;
      byId("answer-text").textContent = error.message;
      place.dataset.failed = "true";
      this.calls.answered([], null);
      this.calls.failed(error);
    } finally {
      if (this.running === running) place.removeAttribute("aria-busy");
    }
  }

  /** Memories that an answer counts: of numbers the map shows what they are of. */
  async counted({ understood }, running) {
    const { what, near, radius_m: radius, between, map_id: map } = understood;
    const query = { k: 200, ...(near && { near, radius_m: radius ?? 5 }), ...(between && { between_ns: between }) };
    if (map !== undefined || this.calls.map() !== null) query.map_id = map ?? this.calls.map();
    const ask = (more) => post("api/query", { ...query, ...more }, { signal: running.signal });
    let { hits } = await ask(what === undefined ? {} : { labels: [what] });
    if (!hits.length) ({ hits } = await ask({ text: what }));
    return memoriesOf({ hits });
  }

  /** Take the answer away. */
  clear() {
    this.running?.abort();
    byId("answer").hidden = true;
    this.calls.cleared();
  }
}
