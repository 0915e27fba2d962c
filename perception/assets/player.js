// Controls of the view: the table of the frame, the timeline, mouse, touch and keys.

// ---------------------------------------------------------------- tables and controls

let rows = [];

function cell(text, name) {
  const made = document.createElement("td");
  made.className = name;
  made.textContent = text;
  return made;
}

function rowOf(box) {
  const row = document.createElement("tr"), head = document.createElement("th"), button = document.createElement("button");
  row.dataset.box = box.key;
  head.scope = "row";
  button.type = "button";
  button.setAttribute("aria-label", `Show ${box.number}, ${box.label}`);
  const swatch = document.createElement("span"), index = document.createElement("span");
  swatch.className = "swatch";
  index.className = "index";
  index.textContent = box.number;
  button.append(swatch, index, " " + box.label);
  button.addEventListener("click", () => pick(row.dataset.box));
  head.append(button);
  row.append(head);
  if (box.score !== null) row.append(cell(box.score.toFixed(2), "number"));
  row.append(cell(box.distance.toFixed(1), "number"), cell(box.box.slice(3, 6).map((value) => value.toFixed(1)).join(" × "), "number size"));
  return row;
}

function fillTables() {
  byId("detection-rows").replaceChildren(...detections.map(rowOf));
  byId("truth-rows").replaceChildren(...truth.map(rowOf));
  rows = [...document.querySelectorAll("tr[data-box]")];
  const { name, summary, notes } = page.frames[state.frame];
  byId("summary").textContent = page.frames.length > 1 ? `${name} · ${summary}` : summary;
  byId("notes").replaceChildren(...notes.map((note) => Object.assign(document.createElement("li"), { textContent: note })));
  byId("notes").parentElement.hidden = !notes.length;
  byId("none").hidden = detections.length > 0;
  byId("detections").hidden = !detections.length;
  byId("truth-details").hidden = !truth.length;
}

function showRows() {
  for (const row of rows) {
    const box = boxOf.get(row.dataset.box), picked = box.key === state.picked;
    row.hidden = box.kind === "d" && !isShown(box);
    row.classList.toggle("picked", picked);
    row.querySelector("button").setAttribute("aria-pressed", picked);
    row.querySelector(".swatch").style.setProperty("--swatch", `var(${hueOf(box)})`);
  }
  byId("shown").textContent = `${detections.filter(isShown).length} of ${detections.length}`;
}

function pick(key, fly = true) {
  const box = boxOf.get(key);
  state.picked = key;
  state.followed = box && box.track !== undefined ? box.track : null;
  showRows();
  if (box && box.kind === "g" && !state.truth) { state.truth = true; byId("truth").checked = true; }
  refresh();
  if (!box) { byId("status").textContent = "Nothing picked."; return; }
  const score = box.score === null ? "" : `, score ${box.score.toFixed(2)}`;
  byId("status").textContent = `${box.number}, ${box.label}${score}, ${box.distance.toFixed(1)} metres away.`;
  if (fly) flyTo({ target: box.centre, distance: Math.max(12, 4 * box.length), pitch: clamp(camera.pitch, 0.35, 1.2) });
}

function pickNext(direction) {
  const list = detections.filter(isShown);
  if (!list.length) return;
  const now = list.findIndex((box) => box.key === state.picked);
  const next = now < 0 ? (direction > 0 ? 0 : list.length - 1) : (now + direction + list.length) % list.length;
  pick(list[next].key);
}

function pickAt(x, y) {
  const view = viewMatrix(canvas.width / canvas.height);
  const hits = shownBoxes().map((box) => {
    const spots = box.corners.map((corner) => project(view, corner));
    if (spots.some((spot) => !spot)) return null;
    const xs = spots.map((spot) => spot.x), ys = spots.map((spot) => spot.y);
    const hit = x > Math.min(...xs) - 8 && x < Math.max(...xs) + 8 && y > Math.min(...ys) - 20 && y < Math.max(...ys) + 8;
    return hit ? { key: box.key, rank: spots[0].depth + (box.kind === "g" ? 1e6 : 0) } : null;
  }).filter(Boolean).sort((a, b) => a.rank - b.rank);
  pick(hits.length ? hits[0].key : null, false);
}

function filterByScore() {
  state.score = Number(byId("score").value);
  byId("score-value").textContent = state.score.toFixed(2);
  const picked = boxOf.get(state.picked);
  if (picked && !isShown(picked)) state.picked = null;
  showRows();
  drawCounts();
  refresh();
}
byId("score").addEventListener("input", filterByScore);

function colourBy(byIntensity) {
  state.byIntensity = byIntensity;
  for (const input of document.getElementsByName("colour")) input.checked = (input.value === "intensity") === byIntensity;
  const [low, high] = byIntensity ? ["0", "1"] : page.heights.map((value) => value.toFixed(1) + " m");
  byId("scale-low").textContent = low;
  byId("scale-high").textContent = high;
  redraw();
}
for (const input of document.getElementsByName("colour")) input.addEventListener("change", () => colourBy(input.value === "intensity"));

function showTruth(shown) {
  state.truth = byId("truth").checked = shown;
  if (!shown && boxOf.get(state.picked)?.kind === "g") state.picked = null;
  showRows();
  refresh();
}
byId("truth").addEventListener("change", () => showTruth(byId("truth").checked));

function colourBoxesBy(byTrack) {
  state.byTrack = byTrack;
  for (const input of document.getElementsByName("hue")) input.checked = (input.value === "track") === byTrack;
  showRows();
  refresh();
}
for (const input of document.getElementsByName("hue")) input.addEventListener("change", () => colourBoxesBy(input.value === "track"));

function showTrails(shown) {
  state.trails = byId("trails").checked = shown;
  refresh();
}
byId("trails").addEventListener("change", () => showTrails(byId("trails").checked));

const lookFromAbove = () => flyTo({ pitch: Math.PI / 2, yaw: 0, distance: Math.max(camera.distance, extent.size * 0.8) });
byId("reset").addEventListener("click", () => flyTo(homeView()));
byId("above").addEventListener("click", lookFromAbove);
byId("nearer").addEventListener("click", () => zoom(0.8));
byId("farther").addEventListener("click", () => zoom(1.25));

// ---------------------------------------------------------------- timeline

const last = page.frames.length - 1;
const PLAY = "M4 2l10 6-10 6z", PAUSE = "M3 2h4v12H3zM9 2h4v12H9z";
const AT_MOST_S = 2, UNTIMED_S = 0.1; // longest pause between frames; pause between frames without times

const betweenS = page.frames.map(({ time }, index) => {
  const before = index ? page.frames[index - 1].time : null;
  const passed = time && before ? Number(BigInt(time) - BigInt(before)) / 1e9 : UNTIMED_S;
  return passed > 0 ? Math.min(passed, AT_MOST_S) : UNTIMED_S;
});

function showFrame(number) {
  loadFrame(clamp(number, 0, last));
  const { name, time } = page.frames[state.frame], first = page.frames[0].time;
  const followed = state.followed === null ? null : detections.find((box) => box.track === state.followed && isShown(box));
  state.picked = followed ? followed.key : null;
  fillTables();
  showRows();
  const since = time && first ? ` · ${(Number(BigInt(time) - BigInt(first)) / 1e9).toFixed(1)} s` : "";
  byId("clock").textContent = `${state.frame + 1} of ${last + 1}${since}`;
  byId("time").value = state.frame;
  byId("time").setAttribute("aria-valuetext", `${name}, ${state.frame + 1} of ${last + 1}`);
  document.documentElement.dataset.frame = state.frame;
  if (renderer) renderer.load();
  refresh();
}

function drawCounts() { // the number of boxes of each frame, as bars behind the slider
  const counts = page.frames.map((one) => one.detections.filter((box) => box.score >= state.score).length);
  const most = Math.max(1, ...counts);
  byId("counts").setAttribute("viewBox", `0 0 ${last + 1} ${most}`);
  byId("counts").firstElementChild.setAttribute("d", counts.map((count, index) => `M${index} ${most}v${-count}h1v${count}z`).join(""));
}

let playing = null, timer = 0; // playing: due time of the shown frame
const waitMs = (number) => (betweenS[number] * 1000) / Number(byId("speed").value);
function play(wanted) {
  if (wanted && state.frame === last) showFrame(0);
  playing = wanted ? performance.now() : null;
  byId("play").setAttribute("aria-label", wanted ? "Pause" : "Play");
  byId("play").querySelector("path").setAttribute("d", wanted ? PAUSE : PLAY);
  clearTimeout(timer);
  if (wanted) tick();
}

function tick() {
  const now = performance.now();
  let next = state.frame;
  // A slow machine skips frames to stay in time.
  while (next < last && now - playing >= waitMs(next + 1)) playing += waitMs(++next);
  if (next !== state.frame) showFrame(next);
  if (next === last) play(false);
  else timer = setTimeout(tick, Math.max(0, playing + waitMs(next + 1) - now));
}

function step(by) {
  play(false);
  showFrame(state.frame + by);
}

byId("play").addEventListener("click", () => play(playing === null));
byId("back").addEventListener("click", () => step(-1));
byId("on").addEventListener("click", () => step(1));
byId("time").addEventListener("input", () => { play(false); showFrame(Number(byId("time").value)); });
byId("time").max = last;
document.querySelector(".timeline").hidden = !last;
document.querySelector(".hues").hidden = !hasTracks;
byId("truth-switch").hidden = !page.frames.some((one) => one.truth.length);
document.querySelector(".timeline-help").hidden = !last;

// ---------------------------------------------------------------- mouse, touch, keys

const pointers = new Map();
let travelled = 0;

canvas.addEventListener("pointerdown", (event) => {
  if (!pointers.size) travelled = 0;
  pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
  canvas.setPointerCapture(event.pointerId);
});

canvas.addEventListener("pointermove", (event) => {
  const before = pointers.get(event.pointerId);
  if (!before) return;
  const right = (event.clientX - before.x) / canvas.clientHeight, down = (event.clientY - before.y) / canvas.clientHeight;
  travelled += Math.hypot(event.clientX - before.x, event.clientY - before.y);
  if (pointers.size === 2) {
    const other = [...pointers].find(([id]) => id !== event.pointerId)[1];
    const span = Math.hypot(before.x - other.x, before.y - other.y);
    const wider = Math.hypot(event.clientX - other.x, event.clientY - other.y);
    move(right / 2, down / 2);
    zoom(clamp(span / Math.max(1, wider), 0.5, 2));
  } else if (event.buttons & 6 || event.shiftKey) move(right, down);
  else turn(right * 3.2, down * 3.2);
  pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
});

for (const name of ["pointerup", "pointercancel"])
  canvas.addEventListener(name, (event) => {
    const last = pointers.delete(event.pointerId) && !pointers.size;
    if (name === "pointerup" && last && travelled < 5 && event.button === 0) {
      const bounds = canvas.getBoundingClientRect();
      pickAt(event.clientX - bounds.left, event.clientY - bounds.top);
    }
  });

canvas.addEventListener("contextmenu", (event) => event.preventDefault());
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? canvas.clientHeight : 1;
  zoom(Math.exp(clamp(event.deltaY * unit, -300, 300) * 0.0015));
}, { passive: false });

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const KEYS = {
  "+": () => zoom(0.85), "=": () => zoom(0.85), "-": () => zoom(1.18), _: () => zoom(1.18),
  0: () => flyTo(homeView()), Home: () => flyTo(homeView()), t: lookFromAbove, n: () => pickNext(1), p: () => pickNext(-1),
  b: () => hasTracks && colourBoxesBy(!state.byTrack), r: () => hasTracks && showTrails(!state.trails),
  c: () => colourBy(!state.byIntensity), g: () => truth.length && showTruth(!state.truth), Escape: () => pick(null),
};

canvas.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const arrow = ARROWS[event.key];
  const action = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (arrow) event.shiftKey ? move(-arrow[0] * 0.05, -arrow[1] * 0.05) : turn(arrow[0] * 0.08, arrow[1] * 0.06);
  else if (action) action();
  else return;
  event.preventDefault();
});

const TIMELINE_KEYS = {
  " ": () => play(playing === null), ",": () => step(-1), ".": () => step(1), "[": () => step(-last), "]": () => step(last),
};

addEventListener("keydown", (event) => {
  if (!last || event.ctrlKey || event.altKey || event.metaKey || !TIMELINE_KEYS[event.key]) return;
  if (event.key === " " && event.target.closest("button, summary, select, input:not([type=range])")) return;
  TIMELINE_KEYS[event.key]();
  event.preventDefault();
});

// ---------------------------------------------------------------- start

showFrame(0);
filterByScore();
colourBy(false);
colourBoxesBy(state.byTrack);
try {
  renderer = createRenderer();
} catch (problem) {
  console.warn(problem);
}
if (renderer) {
  Object.assign(camera, homeView());
  canvas.addEventListener("webglcontextlost", (event) => event.preventDefault());
  canvas.addEventListener("webglcontextrestored", () => { renderer.prepare(); redraw(); });
  matchMedia("(prefers-color-scheme: light)").addEventListener("change", () => refresh(true));
  new ResizeObserver(drawNow).observe(canvas);
} else explainMissing("This browser offers no WebGL, so there is no 3D view.");
