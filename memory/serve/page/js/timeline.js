// The time slider: two handles over a histogram of when memories were last seen.

import { byId, eachFrame } from "./dom.js";
import { time } from "./format.js";

const STEPS = 1000;
const BINS = 120;

export class Timeline {
  /** @param {Function} changed called with the first and last second; infinite where the range is open */
  constructor(changed) {
    this.changed = changed;
    this.from = byId("time-from");
    this.to = byId("time-to");
    this.canvas = byId("histogram");
    this.span = [0, 0];
    this.bins = new Uint32Array(BINS);
    this.redraw = eachFrame(() => this.draw());
    this.from.addEventListener("input", () => this.moved(this.from));
    this.to.addEventListener("input", () => this.moved(this.to));
    this.buttons = [...document.querySelectorAll("[data-back]")];
    for (const button of this.buttons) button.addEventListener("click", () => this.back(button));
    new ResizeObserver(this.redraw).observe(this.canvas);
    document.addEventListener("recall-theme", this.redraw);
  }

  /** First and last second that is chosen. */
  get range() {
    const low = Number(this.from.value);
    const high = Number(this.to.value);
    return [low === 0 ? -Infinity : this.at(low), high === STEPS ? Infinity : this.at(high)];
  }

  at(step) {
    return this.span[0] + ((this.span[1] - this.span[0]) * step) / STEPS;
  }

  /** The times that there are; the chosen range stays the same times. */
  setSpan(first, last) {
    const [from, to] = this.range;
    const known = Number.isFinite(first);
    this.span = known ? [first, last] : [0, 0];
    const length = this.span[1] - this.span[0];
    const step = (value, open) => (Number.isFinite(value) && length > 0 ? Math.round(((value - first) / length) * STEPS) : open);
    this.from.value = step(from, 0);
    this.to.value = step(to, STEPS);
    this.from.disabled = this.to.disabled = !(length > 0);
    for (const button of this.buttons) button.disabled = !(length > 0);
    byId("time-first").textContent = known ? time(first, { short: true }) : "";
    byId("time-last").textContent = known ? `${time(last, { short: true })} UTC` : "";
    this.tell();
  }

  /** Which times to count. */
  setTimes(columns, rows) {
    this.bins = new Uint32Array(BINS);
    const [first, last] = this.span;
    const scale = last > first ? BINS / (last - first) : 0;
    const times = columns.rows.last;
    for (const row of rows) this.bins[Math.min(BINS - 1, Math.max(0, Math.floor((times[row] - first) * scale)))] += 1;
    this.redraw();
  }

  moved(handle) {
    // The handles do not pass each other.
    if (Number(this.from.value) > Number(this.to.value)) {
      if (handle === this.from) this.from.value = this.to.value;
      else this.to.value = this.from.value;
    }
    this.told(null);
  }

  back(button) {
    const seconds = Number(button.dataset.back);
    const length = this.span[1] - this.span[0];
    this.to.value = STEPS;
    this.from.value = seconds ? Math.max(0, Math.floor(STEPS * (1 - seconds / length))) : 0;
    this.told(button);
  }

  told(button) {
    const all = Number(this.from.value) === 0 && Number(this.to.value) === STEPS;
    for (const each of this.buttons) each.setAttribute("aria-pressed", String(button ? each === button : all && !each.dataset.back));
    this.tell();
    this.redraw();
    this.changed(...this.range);
  }

  tell() {
    const low = time(this.at(Number(this.from.value)), { short: true });
    const high = time(this.at(Number(this.to.value)), { short: true });
    this.from.setAttribute("aria-valuetext", `${low} UTC`);
    this.to.setAttribute("aria-valuetext", `${high} UTC`);
    const [from, to] = this.range;
    const open = !Number.isFinite(from) && !Number.isFinite(to);
    byId("time-range").textContent = open ? "at any time" : low.slice(0, 10) === high.slice(0, 10)
      ? `${low} to ${high.slice(11)} UTC` : `${low} to ${high} UTC`;
  }

  draw() {
    const { canvas } = this;
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    const width = canvas.clientWidth;
    const height = canvas.clientHeight;
    if (!width || !height) return;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    const style = getComputedStyle(canvas);
    const [inside, outside] = [style.color, style.outlineColor];
    const most = Math.max(1, ...this.bins);
    const low = (Number(this.from.value) / STEPS) * BINS;
    const high = (Number(this.to.value) / STEPS) * BINS;
    const wide = width / BINS;
    this.bins.forEach((size, bin) => {
      if (!size) return;
      // The square root keeps a quiet hour visible beside a busy one.
      const tall = Math.max(1.5, Math.sqrt(size / most) * height);
      context.fillStyle = bin + 1 > low && bin < Math.max(high, low + 1) ? inside : outside;
      context.fillRect(bin * wide, height - tall, Math.max(wide - 0.75, 0.75), tall);
    });
  }
}
