// Elements. Text is only ever set as text: what a store holds is never read as markup.

/** The element with an id. */
export const byId = (id) => document.getElementById(id);

/**
 * An element.
 * @param {string} tag name, with classes after dots: "p.note"
 * @param {Object} properties event handlers (onclick), attributes ("aria-label"), properties (value)
 * @param {...(Node|string|number|null|undefined|false)} children strings become text nodes
 */
export function element(tag, properties = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  const made = document.createElement(name);
  if (classes.length) made.className = classes.join(" ");
  for (const [key, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key in made && !key.includes("-") && key !== "list") made[key] = value;
    else made.setAttribute(key, value);
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    made.append(child instanceof Node ? child : String(child));
  }
  return made;
}

/** A short message at the bottom, with a button if there is something to do about it. */
export function toast(text, action = null, seconds = 8) {
  const place = byId("toast");
  clearTimeout(toast.timer);
  const parts = [element("span", {}, text)];
  if (action) {
    parts.push(element("button", { type: "button", onclick: () => { hide(); action.run(); } }, action.label));
  }
  parts.push(element("button.close", { type: "button", "aria-label": "Close the message", onclick: hide }, "×"));
  place.replaceChildren(...parts);
  place.dataset.shown = "true";
  function hide() {
    place.dataset.shown = "";
    place.replaceChildren();
  }
  // What can be undone stays for longer: reading and reaching the button takes time.
  toast.timer = setTimeout(hide, (action ? 4 : 1) * seconds * 1000);
}

/** Calls at most once a frame, with the last arguments. */
export function eachFrame(work) {
  let waiting = false;
  let last = [];
  return (...given) => {
    last = given;
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      work(...last);
    });
  };
}

/** Calls once nothing has been asked for a while. */
export function afterPause(work, milliseconds) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...given), milliseconds);
  };
}

/** Where somebody presses now, and what waits for the end of it. */
let pressed = null;
const held = new Map();
function released() {
  pressed = null;
  // The click comes after the button is let go.
  setTimeout(() => {
    const works = [...held.values()];
    held.clear();
    for (const work of works) work();
  });
}
addEventListener("pointerdown", (event) => { pressed = event.target; }, { capture: true });
for (const end of ["pointerup", "pointercancel"]) addEventListener(end, released, { capture: true });

/**
 * Build a place anew, once nobody presses in it: a button that is replaced between press and release is never clicked.
 * Of several that wait for one place the last is done.
 */
export function rebuild(place, work) {
  if (pressed && place.contains(pressed)) held.set(place, work);
  else {
    held.delete(place);
    work();
  }
}

/** A definition list's rows. */
export function facts(rows) {
  return element("dl.facts", {}, rows.filter((row) => row && row[1] !== null && row[1] !== undefined && row[1] !== "")
    .map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
}
