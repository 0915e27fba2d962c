// Live updates: operations as they happen.

import { eventsAddress } from "./api.js";
import { byId } from "./dom.js";

const WORDS = { waiting: "Connecting", live: "Live", lost: "Not connected" };
const AGAIN_MS = 5000;

export class Live {
  /** @param {Function} happened called with the operation; @param {Function} back called when a connection stands again */
  constructor(happened, back) {
    this.happened = happened;
    this.back = back;
    this.source = null;
    this.latest = 0;
    this.state("waiting");
  }

  /** Follow what happens after an operation. */
  follow(after) {
    this.stop();
    this.latest = after;
    const source = (this.source = new EventSource(eventsAddress(after)));
    source.addEventListener("start", (event) => {
      const { generation } = JSON.parse(event.data);
      const lost = byId("live").dataset.state === "lost";
      this.state("live");
      // A number before ours is of another store: everything is read anew.
      if (lost || generation < this.latest) this.back();
    });
    source.addEventListener("operation", (event) => {
      const operation = JSON.parse(event.data);
      this.latest = Math.max(this.latest, operation.generation);
      this.happened(operation);
    });
    source.addEventListener("error", () => {
      this.state("lost");
      // It comes back by itself, unless it was refused.
      if (source.readyState === EventSource.CLOSED) this.timer = setTimeout(() => this.follow(this.latest), AGAIN_MS);
    });
  }

  /** Follow no more. */
  stop() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  }

  state(name) {
    byId("live").dataset.state = name;
    byId("live-text").textContent = WORDS[name];
  }
}
