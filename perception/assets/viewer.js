"use strict";
// Viewer of one frame: decodes the points, draws them and the boxes with WebGL, and ties the tables to the view.
// Axes are the LiDAR frame's: x forward, y left, z up. Positions on the GPU count from the cloud's origin.

addEventListener("error", (event) => { document.documentElement.dataset.error = event.message; });

const byId = (id) => document.getElementById(id);
const frame = JSON.parse(byId("frame").textContent);
const origin = frame.points.origin;
const canvas = byId("view");
const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

// ---------------------------------------------------------------- data

function decodePoints({ count, base64 }) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return { count, steps: new Int16Array(bytes.buffer, 0, count * 3), intensity: bytes.subarray(count * 6) };
}

function toBox(record, index, kind) {
  const [x, y, z, length, width, height, yaw] = record.box;
  const centre = [x - origin[0], y - origin[1], z - origin[2]];
  const cos = Math.cos(yaw), sin = Math.sin(yaw);
  const at = (u, v, w) => [centre[0] + u * cos - v * sin, centre[1] + u * sin + v * cos, centre[2] + w];
  const corners = [];
  for (const w of [-height / 2, height / 2])
    for (const [u, v] of [[1, 1], [1, -1], [-1, -1], [-1, 1]]) corners.push(at((u * length) / 2, (v * width) / 2, w));
  const nose = [centre, at(length / 2 + 0.9, 0, 0)];
  const number = (kind === "g" ? "T" : "") + (index + 1);
  return { ...record, key: kind + index, kind, number, centre, corners, nose, length, distance: Math.hypot(x, y) };
}

const points = decodePoints(frame.points);
const detections = frame.detections.map((record, index) => toBox(record, index, "d"));
const truth = frame.truth.map((record, index) => toBox(record, index, "g"));
const boxOf = new Map([...detections, ...truth].map((box) => [box.key, box]));
const state = { score: 0, truth: true, byIntensity: false, picked: null };
const isShown = (box) => (box.kind === "d" ? box.score >= state.score : state.truth);
const shownBoxes = () => [...detections, ...truth].filter(isShown);

// ---------------------------------------------------------------- colours

function readTheme() {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => {
    const hex = parseInt(style.getPropertyValue(name).trim().slice(1), 16);
    return [(hex >> 16) / 255, ((hex >> 8) & 255) / 255, (hex & 255) / 255];
  };
  return {
    ground: colour("--ground"), grid: colour("--grid"), truth: colour("--truth"),
    stops: [0, 1, 2, 3, 4].flatMap((i) => colour("--point-" + i)),
    classes: [...new Set([...detections, ...truth].map((box) => box.colour))].reduce(
      (all, i) => ({ ...all, [i]: colour("--class-" + i) }), {}),
  };
}

// ---------------------------------------------------------------- camera

const FIELD = Math.tan((50 * Math.PI) / 360);
const camera = { target: [0, 0, 0], distance: 50, yaw: 0, pitch: 0.5 };
const extent = measure();

function measure() {
  const stride = Math.max(1, Math.floor(points.count / 4000));
  const axes = [[], []];
  for (let i = 0; i < points.count; i += stride)
    for (const axis of [0, 1]) axes[axis].push(points.steps[i * 3 + axis] * frame.points.step[axis] + origin[axis]);
  for (const box of boxOf.values()) axes.forEach((values, axis) => values.push(box.box[axis]));
  const spans = axes.map((values) => {
    values.sort((a, b) => a - b);
    const at = (share) => (values.length ? values[Math.round(share * (values.length - 1))] : 0);
    return [at(0.02), at(0.98)];
  });
  const reach = Math.max(10, ...spans.flat().map(Math.abs));
  const size = Math.max(20, spans[0][1] - spans[0][0], spans[1][1] - spans[1][0]);
  const ground = frame.points.count || !boxOf.size ? frame.points.heights[0] : Math.min(...[...boxOf.values()].map((b) => b.box[2] - b.box[5] / 2));
  return { spans, reach, size, ground };
}

function homeView() {
  const [[back, front], [right, left]] = extent.spans;
  const ahead = back > -0.15 * (front - back);
  const slim = Math.max(1, 1.1 / Math.max(0.3, canvas.clientWidth / Math.max(1, canvas.clientHeight)));
  const target = ahead ? [back + 0.3 * (front - back), (left + right) / 2, extent.ground] : [(back + front) / 2 * 0.5, (left + right) / 2 * 0.5, extent.ground];
  return {
    target: target.map((value, axis) => value - origin[axis]),
    distance: (ahead ? 0.66 : 0.74) * extent.size * Math.sqrt(slim), yaw: 0, pitch: ahead ? 0.5 : 0.7,
  };
}

function basis({ yaw, pitch }) {
  const cy = Math.cos(yaw), sy = Math.sin(yaw), cp = Math.cos(pitch), sp = Math.sin(pitch);
  return { right: [sy, -cy, 0], up: [cy * sp, sy * sp, cp], forward: [cp * cy, cp * sy, -sp] };
}

function viewMatrix(aspect) {
  const { right, up, forward } = basis(camera);
  const eye = camera.target.map((value, axis) => value - forward[axis] * camera.distance);
  const near = Math.max(0.05, camera.distance * 0.02), far = camera.distance + 6 * extent.size + 50;
  const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
  const rows = [
    [...right, -dot(right, eye)].map((value) => value / (FIELD * aspect)),
    [...up, -dot(up, eye)].map((value) => value / FIELD),
    [...forward, -dot(forward, eye)],
  ];
  const depth = rows[2].map((value) => (value * (far + near)) / (far - near));
  depth[3] -= (2 * far * near) / (far - near);
  const matrix = new Float32Array(16);
  [rows[0], rows[1], depth, rows[2]].forEach((row, r) => row.forEach((value, c) => { matrix[c * 4 + r] = value; }));
  return { matrix, near };
}

let flight = 0;
function flyTo(goal) {
  cancelAnimationFrame(flight);
  const start = { ...camera, target: [...camera.target] };
  const end = { ...start, ...goal };
  end.yaw = start.yaw + Math.atan2(Math.sin(end.yaw - start.yaw), Math.cos(end.yaw - start.yaw));
  const milliseconds = matchMedia("(prefers-reduced-motion: reduce)").matches ? 0 : 300;
  const began = performance.now();
  const step = (now) => {
    const share = milliseconds ? clamp((now - began) / milliseconds, 0, 1) : 1;
    const eased = share * share * (3 - 2 * share);
    const mix = (a, b) => a + (b - a) * eased;
    Object.assign(camera, {
      target: start.target.map((value, axis) => mix(value, end.target[axis])), distance: mix(start.distance, end.distance),
      yaw: mix(start.yaw, end.yaw), pitch: mix(start.pitch, end.pitch),
    });
    redraw();
    if (share < 1) flight = requestAnimationFrame(step);
  };
  step(began);
}

function turn(right, down) {
  cancelAnimationFrame(flight);
  camera.yaw -= right;
  camera.pitch = clamp(camera.pitch + down, -0.2, Math.PI / 2);
  redraw();
}

function move(right, down) { // in heights of the canvas
  cancelAnimationFrame(flight);
  const { right: r, up: u } = basis(camera);
  const scale = 2 * FIELD * camera.distance;
  camera.target = camera.target.map((value, axis) => value + scale * (down * u[axis] - right * r[axis]));
  redraw();
}

function zoom(factor) {
  cancelAnimationFrame(flight);
  camera.distance = clamp(camera.distance * factor, 1.5, 8 * extent.size);
  redraw();
}

// ---------------------------------------------------------------- drawing

const POINT_SHADERS = [`
  attribute vec3 steps; attribute float intensity;
  uniform mat4 matrix; uniform vec3 size; uniform vec3 stops[5]; uniform vec2 heights; uniform vec3 dot; uniform bool byIntensity;
  varying vec3 colour;
  void main() {
    vec3 place = steps * size;
    gl_Position = matrix * vec4(place, 1.0);
    gl_PointSize = clamp(dot.x / max(gl_Position.w, 0.01), dot.y, dot.z);
    float t = byIntensity ? sqrt(intensity) : clamp((place.z - heights.x) / (heights.y - heights.x), 0.0, 1.0);
    t *= 4.0;
    colour = mix(stops[0], stops[1], clamp(t, 0.0, 1.0));
    colour = mix(colour, stops[2], clamp(t - 1.0, 0.0, 1.0));
    colour = mix(colour, stops[3], clamp(t - 2.0, 0.0, 1.0));
    colour = mix(colour, stops[4], clamp(t - 3.0, 0.0, 1.0));
  }`, `
  precision mediump float; varying vec3 colour;
  void main() {
    if (length(gl_PointCoord - 0.5) > 0.55) discard;
    gl_FragColor = vec4(colour, 1.0);
  }`];
// A line is a quad of two triangles, widened on the screen; its ends are cut at the near plane first.
const LINE_SHADERS = [`
  attribute vec3 start; attribute vec3 end; attribute vec2 place; attribute vec4 tint;
  uniform mat4 matrix; uniform vec2 screen; uniform float thickness; uniform float near;
  varying vec4 colour; varying float along;
  void main() {
    vec4 a = matrix * vec4(start, 1.0), b = matrix * vec4(end, 1.0);
    if (a.w < near && b.w < near) { gl_Position = vec4(2.0, 2.0, 2.0, 1.0); return; }
    if (a.w < near) a = mix(b, a, (b.w - near) / (b.w - a.w));
    else if (b.w < near) b = mix(a, b, (a.w - near) / (a.w - b.w));
    vec2 way = (b.xy / b.w - a.xy / a.w) * screen;
    way = length(way) > 0.0 ? normalize(way) : vec2(1.0, 0.0);
    vec4 here = mix(a, b, place.x);
    here.xy += (vec2(-way.y, way.x) * place.y + way * (place.x * 2.0 - 1.0) * 0.5) * thickness / screen * here.w;
    gl_Position = here;
    colour = tint;
    along = place.x * distance(start, end);
  }`, `
  precision mediump float; varying vec4 colour; varying float along; uniform float dash;
  void main() {
    if (dash > 0.0 && fract(along / dash) > 0.6) discard;
    gl_FragColor = colour;
  }`];
const FILL_SHADERS = [`
  attribute vec3 position; attribute vec4 tint; uniform mat4 matrix; varying vec4 colour;
  void main() { gl_Position = matrix * vec4(position, 1.0); colour = tint; }`, `
  precision mediump float; varying vec4 colour; void main() { gl_FragColor = colour; }`];
const EDGES = [[0, 1], [1, 2], [2, 3], [3, 0], [4, 5], [5, 6], [6, 7], [7, 4], [0, 4], [1, 5], [2, 6], [3, 7]];
const FACES = [[0, 1, 5, 4], [1, 2, 6, 5], [2, 3, 7, 6], [3, 0, 4, 7], [4, 5, 6, 7]];
const FRONT = FACES.slice(0, 1);

function program(gl, [vertex, fragment], attributes) {
  const built = gl.createProgram();
  [[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]].forEach(([kind, source]) => {
    const shader = gl.createShader(kind);
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    gl.attachShader(built, shader);
  });
  attributes.forEach((name, index) => gl.bindAttribLocation(built, index, name));
  gl.linkProgram(built);
  if (!gl.getProgramParameter(built, gl.LINK_STATUS) && !gl.isContextLost()) throw new Error(gl.getProgramInfoLog(built) || "shader");
  const uniform = {};
  for (let i = 0; i < gl.getProgramParameter(built, gl.ACTIVE_UNIFORMS); i++) {
    const name = gl.getActiveUniform(built, i).name.replace("[0]", "");
    uniform[name] = gl.getUniformLocation(built, name);
  }
  return { built, uniform };
}

function lineVertices(out, start, end, tint) {
  for (const place of [[0, -1], [1, -1], [1, 1], [0, -1], [1, 1], [0, 1]]) out.push(...start, ...end, ...place, ...tint);
}

function boxLines(boxes, theme) {
  const out = [];
  for (const box of boxes) {
    const tint = [...(box.kind === "g" ? theme.truth : theme.classes[box.colour]), 1];
    for (const [a, b] of EDGES) lineVertices(out, box.corners[a], box.corners[b], tint);
    lineVertices(out, ...box.nose, tint);
  }
  return out;
}

function boxFills(boxes, theme) {
  const out = [];
  for (const box of boxes.filter((one) => one.kind === "d" || one.key === state.picked)) {
    const picked = box.key === state.picked;
    for (const face of picked ? FACES : FRONT)
      for (const corner of [0, 1, 2, 0, 2, 3]) out.push(...box.corners[face[corner]], ...theme.classes[box.colour], picked ? 0.22 : 0.3);
  }
  return out;
}

const ringStep = [5, 10, 20, 50, 100, 200].find((step) => extent.reach / step <= 7) || 500;
function gridLines(theme) {
  const out = [], tint = [...theme.grid, 1], z = extent.ground - origin[2];
  const at = (radius, angle) => [radius * Math.cos(angle) - origin[0], radius * Math.sin(angle) - origin[1], z];
  for (let radius = ringStep; radius <= extent.reach + ringStep; radius += ringStep)
    for (let part = 0; part < 96; part++)
      lineVertices(out, at(radius, (part * Math.PI) / 48), at(radius, ((part + 1) * Math.PI) / 48), tint);
  const sensor = [-origin[0], -origin[1], -origin[2]];
  const axes = [[[1.5, 0, 0], [0.94, 0.36, 0.36]], [[0, 1.5, 0], [0.3, 0.78, 0.42]], [[0, 0, 1.5], [0.35, 0.55, 0.98]]];
  for (const [way, colour] of axes) lineVertices(out, sensor, sensor.map((value, axis) => value + way[axis]), [...colour, 1]);
  return out;
}

function createRenderer() {
  const gl = canvas.getContext("webgl", { antialias: true, alpha: false });
  if (!gl) return null;
  const draws = { points: null, lines: null, fills: null };
  const buffers = {};
  const layers = {};
  let theme = null;

  const fill = (name, data) => {
    buffers[name] = buffers[name] || gl.createBuffer();
    gl.bindBuffer(gl.ARRAY_BUFFER, buffers[name]);
    gl.bufferData(gl.ARRAY_BUFFER, data, gl.STATIC_DRAW);
  };
  const attribute = (index, size, kind, normalised, stride, offset) => {
    gl.enableVertexAttribArray(index);
    gl.vertexAttribPointer(index, size, kind, normalised, stride, offset);
  };
  const only = (count) => { for (let i = count; i < 4; i++) gl.disableVertexAttribArray(i); };

  function prepare() {
    for (const name of Object.keys(buffers)) delete buffers[name];
    draws.points = program(gl, POINT_SHADERS, ["steps", "intensity"]);
    draws.lines = program(gl, LINE_SHADERS, ["start", "end", "place", "tint"]);
    draws.fills = program(gl, FILL_SHADERS, ["position", "tint"]);
    fill("steps", points.steps);
    fill("intensity", points.intensity);
    update(true);
  }

  function update(themeChanged) {
    if (themeChanged) theme = readTheme();
    const shown = shownBoxes();
    const layer = (name, data) => { fill(name, new Float32Array(data)); layers[name] = data.length / 12; };
    layer("grid", gridLines(theme));
    layer("boxes", boxLines(shown.filter((box) => box.kind === "d" && box.key !== state.picked), theme));
    layer("truth", boxLines(shown.filter((box) => box.kind === "g" && box.key !== state.picked), theme));
    layer("picked", boxLines(shown.filter((box) => box.key === state.picked), theme));
    const faces = boxFills(shown, theme);
    fill("faces", new Float32Array(faces));
    layers.faces = faces.length / 7;
  }

  function drawPoints(view, pixels) {
    const { built, uniform } = draws.points;
    gl.useProgram(built);
    gl.uniformMatrix4fv(uniform.matrix, false, view.matrix);
    gl.uniform3fv(uniform.size, frame.points.step);
    gl.uniform3fv(uniform.stops, theme.stops);
    gl.uniform2fv(uniform.heights, frame.points.heights.map((value) => value - origin[2]));
    gl.uniform1i(uniform.byIntensity, state.byIntensity ? 1 : 0);
    gl.uniform3f(uniform.dot, (0.036 * canvas.height) / FIELD, 1.7 * pixels, 6 * pixels);
    gl.bindBuffer(gl.ARRAY_BUFFER, buffers.steps);
    attribute(0, 3, gl.SHORT, false, 6, 0);
    gl.bindBuffer(gl.ARRAY_BUFFER, buffers.intensity);
    attribute(1, 1, gl.UNSIGNED_BYTE, true, 1, 0);
    only(2);
    if (points.count) gl.drawArrays(gl.POINTS, 0, points.count);
  }

  function drawLines(view, name, thickness, dash) {
    if (!layers[name]) return;
    const { built, uniform } = draws.lines;
    gl.useProgram(built);
    gl.uniformMatrix4fv(uniform.matrix, false, view.matrix);
    gl.uniform2f(uniform.screen, canvas.width, canvas.height);
    gl.uniform1f(uniform.thickness, thickness);
    gl.uniform1f(uniform.near, view.near);
    gl.uniform1f(uniform.dash, dash);
    gl.bindBuffer(gl.ARRAY_BUFFER, buffers[name]);
    [[3, 0], [3, 12], [2, 24], [4, 32]].forEach(([size, offset], index) => attribute(index, size, gl.FLOAT, false, 48, offset));
    gl.drawArrays(gl.TRIANGLES, 0, layers[name]);
  }

  function drawFaces(view) {
    if (!layers.faces) return;
    gl.useProgram(draws.fills.built);
    gl.uniformMatrix4fv(draws.fills.uniform.matrix, false, view.matrix);
    gl.bindBuffer(gl.ARRAY_BUFFER, buffers.faces);
    attribute(0, 3, gl.FLOAT, false, 28, 0);
    attribute(1, 4, gl.FLOAT, false, 28, 12);
    only(2);
    gl.drawArrays(gl.TRIANGLES, 0, layers.faces);
  }

  function draw(view) {
    const pixels = canvas.width / Math.max(1, canvas.clientWidth);
    gl.viewport(0, 0, canvas.width, canvas.height);
    gl.clearColor(...theme.ground, 1);
    gl.enable(gl.DEPTH_TEST);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    drawLines(view, "grid", 1.2 * pixels, 0);
    drawPoints(view, pixels);
    drawLines(view, "boxes", 2.2 * pixels, 0);
    drawLines(view, "truth", 1.6 * pixels, 0.45);
    drawLines(view, "picked", 3.6 * pixels, 0);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA);
    gl.depthMask(false);
    drawFaces(view);
    gl.depthMask(true);
    gl.disable(gl.BLEND);
  }

  prepare();
  return { draw, update, prepare };
}

// ---------------------------------------------------------------- labels over the view

function project(view, place) {
  const at = (row) => view.matrix[row] * place[0] + view.matrix[row + 4] * place[1] + view.matrix[row + 8] * place[2] + view.matrix[row + 12];
  const depth = at(3);
  if (depth < view.near) return null;
  return { x: (at(0) / depth * 0.5 + 0.5) * canvas.clientWidth, y: (0.5 - at(1) / depth * 0.5) * canvas.clientHeight, depth };
}

const tags = new Map();
function tagFor(key, text, colour) {
  if (!tags.has(key)) {
    const tag = document.createElement("span");
    tag.textContent = text;
    tag.style.setProperty("--tag", colour);
    byId("tags").append(tag);
    tags.set(key, tag);
  }
  return tags.get(key);
}

function wantedTags() {
  const wanted = shownBoxes()
    .filter((box) => box.kind === "d" || box.key === state.picked || !detections.length)
    .sort((a, b) => (b.key === state.picked) - (a.key === state.picked))
    .slice(0, 150)
    .map((box) => {
      const picked = box.key === state.picked;
      const text = picked ? [box.number, box.label, box.score === null ? "" : box.score.toFixed(2)].join(" ") : box.number;
      const top = [box.centre[0], box.centre[1], box.corners[4][2]];
      return { key: box.key + (picked ? "+" : ""), text, picked, place: top, rise: 18, colour: `var(--class-${box.colour})` };
    });
  for (let radius = ringStep; radius <= extent.reach; radius += ringStep)
    wanted.push({ key: "r" + radius, text: radius + " m", place: [radius - origin[0], -origin[1], extent.ground - origin[2]], rise: 6, colour: "var(--faint)" });
  return wanted;
}

function placeTags(view) {
  const taken = [], visible = new Set();
  for (const { key, text, picked, place, rise, colour } of wantedTags()) {
    const spot = project(view, place);
    if (!spot || spot.x < 0 || spot.y < 12 || spot.x > canvas.clientWidth || spot.y > canvas.clientHeight) continue;
    const half = 8 + 3.4 * text.length;
    if (taken.some((other) => Math.abs(other.x - spot.x) < other.half + half && Math.abs(other.y - spot.y) < 18)) continue;
    taken.push({ ...spot, half });
    visible.add(key);
    const tag = tagFor(key, text, colour);
    tag.className = picked ? "picked" : "";
    tag.style.transform = `translate(-50%, 0) translate(${spot.x.toFixed(1)}px, ${(spot.y - rise).toFixed(1)}px)`;
  }
  for (const [key, tag] of tags) tag.hidden = !visible.has(key);
}

// ---------------------------------------------------------------- redraw when something changed

let renderer = null, pending = false;
function drawNow() {
  pending = false;
  const scale = Math.min(devicePixelRatio || 1, 2);
  const width = Math.max(1, Math.round(canvas.clientWidth * scale)), height = Math.max(1, Math.round(canvas.clientHeight * scale));
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  const view = viewMatrix(width / height);
  renderer.draw(view);
  placeTags(view);
  document.documentElement.dataset.state = "ready";
}

function redraw() {
  if (pending || !renderer) return;
  pending = true;
  requestAnimationFrame(drawNow);
}

function refresh(themeChanged = false) {
  if (renderer) renderer.update(themeChanged);
  redraw();
}

function explainMissing(reason) {
  byId("fallback").textContent = reason + " The table lists what was found.";
  byId("fallback").hidden = false;
  canvas.hidden = document.querySelector(".tools").hidden = true;
  document.documentElement.dataset.state = "no-webgl";
}

// ---------------------------------------------------------------- tables and controls

const rows = [...document.querySelectorAll("tr[data-box]")];

function showRows() {
  for (const row of rows) {
    const box = boxOf.get(row.dataset.box), picked = box.key === state.picked;
    row.hidden = box.kind === "d" && !isShown(box);
    row.classList.toggle("picked", picked);
    row.querySelector("button").setAttribute("aria-pressed", picked);
  }
  byId("shown").textContent = `${detections.filter(isShown).length} of ${detections.length}`;
}

function pick(key, fly = true) {
  state.picked = key;
  showRows();
  const box = boxOf.get(key);
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

for (const row of rows) row.addEventListener("click", () => pick(row.dataset.box));

function filterByScore() {
  state.score = Number(byId("score").value);
  byId("score-value").textContent = state.score.toFixed(2);
  const picked = boxOf.get(state.picked);
  if (picked && !isShown(picked)) state.picked = null;
  showRows();
  refresh();
}
byId("score").addEventListener("input", filterByScore);

function colourBy(byIntensity) {
  state.byIntensity = byIntensity;
  for (const input of document.getElementsByName("colour")) input.checked = (input.value === "intensity") === byIntensity;
  const [low, high] = byIntensity ? ["0", "1"] : frame.points.heights.map((value) => value.toFixed(1) + " m");
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

const lookFromAbove = () => flyTo({ pitch: Math.PI / 2, yaw: 0, distance: Math.max(camera.distance, extent.size * 0.8) });
byId("reset").addEventListener("click", () => flyTo(homeView()));
byId("above").addEventListener("click", lookFromAbove);
byId("nearer").addEventListener("click", () => zoom(0.8));
byId("farther").addEventListener("click", () => zoom(1.25));

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

// ---------------------------------------------------------------- start

filterByScore();
colourBy(false);
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
