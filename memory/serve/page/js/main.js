// The page: what is shown follows from the columns, the filters, the time and the answer.

import { ApiError, getBytes, useToken } from "./api.js";
import { Activity } from "./activity.js";
import { Asking } from "./asking.js";
import { Card } from "./card.js";
import { Columns } from "./columns.js";
import { afterPause, byId, eachFrame, element, toast } from "./dom.js";
import { Filters } from "./filters.js";
import { askToForget } from "./forgetting.js";
import { count, plural, time } from "./format.js";
import { glyph, learn } from "./glyphs.js";
import { Health } from "./health.js";
import { entryOf, entryOfMemory, List } from "./list.js";
import { Live } from "./live.js";
import { MemoryMap } from "./map.js";
import { choosePanel, panelShown, startPanels } from "./panels.js";
import { Timeline } from "./timeline.js";

const DAY = 86400;
/** Classes that the legend names. */
const LEGEND = 6;
const columns = new Columns();
/** Rows that pass the filters; those of them that were seen within the time. */
let passing = new Uint32Array(0);
let timed = passing;
/** Memories of the answer with what they are in it, or null. */
let answered = null;
/** Where the map was before the answer. */
let before = null;
let started = false;

const map = new MemoryMap(byId("map"), {
  moved: () => draw(),
  map: () => filters.map,
  failed: (error) => failed(error),
  open: (row) => card.open(columns.rows.id[row], byId("map")),
  gather: (mark) => {
    const rows = columns.within(timed, [mark.x, mark.y, mark.x, mark.y].map((at, side) => at + (side < 2 ? -mark.cell : mark.cell)));
    answered = rows.length <= 2000 ? Array.from(rows, (row) => [entryOf(columns, row), null]) : answered;
    byId("answer").hidden = false;
    byId("answer-text").textContent = `${plural(rows.length, "memory", "memories")} at one place.`;
    byId("answer-understood").textContent = "";
    answerShown();
  },
});
const list = new List((id, opener) => card.open(id, opener));
const health = new Health();
const filters = new Filters(({ map: other }) => {
  list.reset();
  select();
  if (other) showAll();
});
const timeline = new Timeline(eachFrame(() => {
  list.reset();
  choose();
}));
const activity = new Activity({ changed: () => refresh(), readonly: () => health.readonly });
const card = new Card({
  closed: () => { list.select(null); map.select(columns, null); history.replaceState(null, "", location.pathname); },
  show: (x, y) => { map.fit([x - 5, y - 5, x + 5, y + 5]); byId("map").scrollIntoView({ block: "nearest" }); },
  forget: (memory) => askToForget(memory, { done: () => { card.close(); refresh(); }, undo: (generation) => activity.undo(generation) }),
  similar: (id) => { choosePanel("memories"); card.close(); asking.ask({ question: "similar_situations", what: id }); },
  open: (id) => card.open(id),
  undo: (generation) => activity.undo(generation),
  changed: () => refresh(),
  readonly: () => health.readonly,
});
const asking = new Asking({
  // The answer comes where the card is.
  asked: () => card.close({ focus: false }),
  answered: (pairs, found) => {
    before ??= map.place;
    // An answer without memories, such as a number, leaves the map as it is.
    answered = found && pairs.length ? pairs.map(([memory, role]) => [entryOfMemory(memory, role), role]) : null;
    choosePanel("memories");
    answerShown();
    if (pairs.length) map.fit(boxAround(pairs.map(([memory]) => memory).filter((memory) => memory.map_id === filters.map)), { closest: 4 });
  },
  cleared: () => {
    answered = null;
    list.reset();
    // Back to what was looked at before the question.
    if (before) map.place = before;
    before = null;
    draw();
  },
  failed: (error) => failed(error),
  map: () => filters.map,
  last: () => lastTime(),
});
const live = new Live(() => later(), () => refresh({ anew: true }));
const later = afterPause(() => refresh(), 400);

function lastTime() {
  const last = Math.ceil(columns.newest * 1000);
  return Math.abs(last) < 8e15 ? new Date(last).toISOString() : null;
}

/** The box around the memories that have a place, as [x0, y0, x1, y1]; null where none has. */
function boxAround(memories) {
  const places = memories.map(({ position }) => position).filter(Boolean);
  if (!places.length) return null;
  const xs = places.map(([x]) => x);
  const ys = places.map(([, y]) => y);
  return [Math.min(...xs), Math.min(...ys), Math.max(...xs), Math.max(...ys)];
}

function answerShown() {
  list.reset();
  draw();
}

/** Filters changed: which rows pass. */
function select() {
  passing = columns.passing(filters.wanted);
  timeline.setSpan(...columns.span(columns.passing({ map: filters.map })));
  timeline.setTimes(columns, passing);
  choose();
}

/** The time changed: which of them were seen then. */
function choose() {
  const [from, to] = timeline.range;
  timed = Number.isFinite(from) || Number.isFinite(to) ? columns.during(passing, from, to) : passing;
  legend();
  map.drawPath(columns.version, timeline.range).catch(failed);
  map.drawAreas(columns.version).catch(failed);
  draw();
}

/** The classes that pass, the most frequent first, as the map draws them. */
function legend() {
  const sizes = columns.counts("label", timed);
  const labels = columns.names.labels.map((name, at) => [name, sizes[at]]).filter(([, size]) => size).sort((a, b) => b[1] - a[1]);
  const more = labels.length > LEGEND ? [element("li", {}, `and ${count(labels.length - LEGEND)} more`)] : [];
  byId("classes").replaceChildren(...labels.slice(0, LEGEND).map(([name]) => element("li", {}, glyph(name, "present"), element("span", {}, name || "no label"))), ...more);
}

const fillLater = afterPause(() => fill(), 120);

/** The view changed: what is drawn at once, and the list a little later. */
const draw = eachFrame(() => {
  if (!started) return;
  const [x0, y0, x1, y1] = map.view;
  const [wide, tall] = [(x1 - x0) * 0.2, (y1 - y0) * 0.2];
  const rows = columns.within(timed, [x0 - wide, y0 - tall, x1 + wide, y1 + tall]);
  map.draw(columns, rows, answered && new Set(answered.map(([entry]) => entry.id)), card.id);
  fillLater();
});

function fill() {
  if (!started) return;
  byId("list").setAttribute("aria-label", answered ? "Memories of the answer" : "Memories that the map shows");
  byId("order").disabled = Boolean(answered);
  if (answered) {
    const entries = answered.map(([entry]) => entry);
    list.fill(entries.slice(0, list.limit), entries.length, {
      title: `${plural(entries.length, "memory", "memories")} in the answer`, empty: "No memories match.",
      selected: () => card.id, refill: fill,
    });
    tellMap(entries.length);
    return;
  }
  const inView = columns.within(timed, map.view);
  // No part of the map shows what is at no known place: the list does, whatever the view.
  const unplaced = columns.unplaced(timed);
  const rows = new Uint32Array(inView.length + unplaced.length);
  rows.set(inView);
  rows.set(unplaced, inView.length);
  const shown = columns.top(rows, list.limit, byId("order").value, map.middle).map((row) => entryOf(columns, row));
  const apart = unplaced.length ? `, ${count(unplaced.length)} with no known place` : "";
  const title = rows.length === passing.length ? plural(rows.length, "memory", "memories")
    : `${count(inView.length)} of ${plural(passing.length, "memory", "memories")} in view${apart}`;
  list.fill(shown, rows.length, { title, empty: nothing(), selected: () => card.id, refill: fill });
  tellMap(inView.length);
}

function nothing() {
  if (!columns.length) return "No memories yet. They appear here as the robot adds them.";
  if (!passing.length) return "No memory matches the filters.";
  if (timed.length && !columns.box(timed)) return "The places of these memories are unknown. The list shows them.";
  return timed.length ? "No memory in this part of the map. Move it, or press Show all." : "No memories in this time range.";
}

function tellMap(inView) {
  const state = byId("map-state");
  const cut = columns.total > columns.length ? `The map holds the ${count(columns.length)} seen last of ${count(columns.total)}.` : "";
  state.textContent = columns.length && inView ? cut : nothing();
  state.hidden = !state.textContent || Boolean(answered);
}

function showAll(animate) {
  map.resized();
  const box = columns.box(timed.length ? timed : passing);
  if (box) map.fit(box, animate === undefined ? {} : { animate });
}

/** Read what changed, or everything, and show it. */
let reading = Promise.resolve();
function refresh({ anew = false } = {}) {
  reading = reading.then(() => read(anew)).catch(failed);
  return reading;
}

async function read(anew) {
  const first = !started;
  const since = columns.version && !anew ? `?since=${encodeURIComponent(columns.version)}` : "";
  const [bytes] = await Promise.all([getBytes(`api/map${since}`), health.load()]);
  columns.take(bytes);
  learn(columns.names.labels);
  started = true;
  byId("banner").hidden = byId("access").hidden = true;
  filters.update(columns);
  select();
  if (first) {
    reference();
    showAll(false);
    followAddress();
  } else if (card.id !== null) {
    card.load();
  }
  await activity.load();
  if (!live.source) live.follow(Number(columns.version.split("-")[1]));
}

/** Open the card that the address names; without a name in it, close the one that is open. */
function followAddress() {
  const wanted = /^#memory=(\d{1,15})$/.exec(location.hash);
  if (!wanted) card.close({ focus: false });
  else if (Number(wanted[1]) !== card.id) card.open(Number(wanted[1]), byId("map"));
}

/** Recordings are of another time: "yesterday" may mean the day before the last memory. */
function reference() {
  const last = lastTime();
  if (last === null) return;
  const apart = Math.abs(Date.now() - Date.parse(last)) / 1000;
  byId("reference").hidden = apart < DAY;
  byId("reference-time").value = apart > 7 * DAY ? "last" : "now";
  byId("reference-time").options[1].textContent = `the last memory, ${time(Date.parse(last) / 1000, { short: true })} UTC`;
}

function failed(error) {
  if (!(error instanceof ApiError)) {
    console.error(error);
    toast(`Error on this page: ${error.message}`);
    return;
  }
  if (error.status === 401) {
    byId("access").hidden = false;
    byId("access-problem").textContent = byId("token").value ? "Wrong token." : "";
    byId("token").focus();
    live.stop();
    live.state("lost");
  } else if (!started || error.status === 0) {
    byId("banner").hidden = false;
    byId("banner-text").textContent = error.message;
  }
  if (!started) {
    byId("map-state").textContent = error.status === 401 ? "Waiting for the token." : "There is nothing to show.";
    byId("count").textContent = "";
  }
}

byId("access").addEventListener("submit", (event) => {
  event.preventDefault();
  useToken(byId("token").value.trim());
  refresh();
});
byId("banner-retry").addEventListener("click", () => refresh());
addEventListener("hashchange", () => started && followAddress());
byId("fit").addEventListener("click", () => showAll());
byId("order").addEventListener("change", () => { list.reset(); fill(); });
document.addEventListener("recall-theme", () => { map.recolour(); if (started) choose(); });
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, select, textarea, dialog")) return;
  event.preventDefault();
  byId("question").focus();
});
new ResizeObserver(() => map.resized()).observe(byId("map"));
// A card that opens is marked in the list and on the map, and has an address.
new MutationObserver(() => {
  if (card.id === null) return;
  list.select(card.id);
  map.select(columns, card.id);
  const row = columns.rowOf(card.id);
  if (row >= 0) map.reveal(columns.rows.x[row], columns.rows.y[row]);
  history.replaceState(null, "", `#memory=${card.id}`);
}).observe(byId("card"), { attributes: true, attributeFilter: ["aria-busy"] });
startPanels((name) => {
  if (name === "store") health.load().catch(failed);
  if (name === "activity") activity.load().catch(failed);
});
// Times in words grow old.
setInterval(() => { if (panelShown() === "memories" && document.visibilityState === "visible") fill(); }, 60_000);
refresh();
