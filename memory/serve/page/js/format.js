// Numbers with units, and times.

const whole = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 0 });
const ago = new Intl.RelativeTimeFormat("en-GB", { numeric: "auto" });
const STEPS = [["year", 31557600], ["month", 2629800], ["week", 604800], ["day", 86400], ["hour", 3600], ["minute", 60]];

/** 12,345 */
export const count = (value) => whole.format(value);

/** "1 memory", "2 memories" */
export const plural = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;

/** Metres with a decimal, without a minus before zero. */
export const metres = (value, digits = 1) => (Math.round(value * 10 ** digits) / 10 ** digits + 0).toFixed(digits);

/** (x, y) m */
export const point = (x, y) => `(${metres(x)}, ${metres(y)}) m`;

/** "3.0, 1.0 m", or that nobody knows; what is at no known place has neither x nor y */
export const placeWords = (x, y) => (Number.isFinite(x) && Number.isFinite(y) ? `${metres(x)}, ${metres(y)} m` : "place unknown");

/** 0.58 as 58 % */
export const percent = (value) => (value === null || Number.isNaN(value) ? "not known" : `${whole.format(value * 100)} %`);

/** Bytes in the unit that reads best. */
export function bytes(value) {
  if (value < 1000) return `${whole.format(value)} B`;
  const units = ["kB", "MB", "GB", "TB"];
  let unit = -1;
  do { value /= 1000; unit += 1; } while (value >= 1000 && unit < 3);
  return `${value.toFixed(value < 100 ? 1 : 0)} ${units[unit]}`;
}

const inCalendar = (seconds) => Math.abs(seconds) < 8e12;

/** 2026-01-06 09:00:41, in UTC as everything that the service says; to the minute where that is enough. */
export function time(seconds, { short = false } = {}) {
  if (!inCalendar(seconds)) return `${seconds} s`;
  const text = new Date(seconds * 1000).toISOString().replace("T", " ").replace(/\.\d+Z$/, "");
  return short ? text.slice(0, -3) : text;
}

/** The same in words of now: "3 hours ago". */
export function relative(seconds, now = Date.now() / 1000) {
  const apart = seconds - now;
  for (const [unit, size] of STEPS) {
    if (Math.abs(apart) >= size) return ago.format(Math.trunc(apart / size), unit);
  }
  return Math.abs(apart) < 10 ? "just now" : ago.format(Math.trunc(apart), "second");
}

/** What a list has room for: in words of now for a day, then the date. */
export function brief(seconds, now = Date.now() / 1000) {
  return Math.abs(seconds - now) < 86400 ? relative(seconds, now) : time(seconds, { short: true });
}

/** "once", "12 times" */
export const times = (value) => (value === 1 ? "once" : `${count(value)} times`);

/** A time element: absolute, and relative where wanted. */
export function timeElement(seconds, { both = false, short = false } = {}) {
  const made = document.createElement("time");
  if (inCalendar(seconds)) made.dateTime = new Date(seconds * 1000).toISOString();
  made.title = `${time(seconds)} UTC`;
  made.textContent = both ? `${time(seconds)} UTC` : short ? brief(seconds) : time(seconds);
  if (!both) return made;
  const words = document.createElement("span");
  words.className = "note";
  words.textContent = relative(seconds);
  made.append(" ", words);
  return made;
}

/** "present" in the words of the page. */
export const stateWords = { present: "there", moved: "moved", gone: "gone", unknown: "unknown" };

/** What a memory is called. */
export const nameOf = (label, kind) => label || kind;
