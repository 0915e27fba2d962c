"use strict";
// View of one frame at a time: decodes the points, draws them and the boxes with WebGL, and labels them.
// Axes are the LiDAR frame's: x forward, y left, z up. Positions on the GPU are relative to one origin of all frames.

addEventListener("error", (event) => { document.documentElement.dataset.error = event.message; });

const byId = (id) => document.getElementById(id);
const page = JSON.parse(byId("frames").textContent);
const stored = [...document.querySelectorAll("script.points")];
const fullest = page.frames.reduce((best, one, index, all) => (one.points.count > all[best].points.count ? index : best), 0);
const origin = page.frames[fullest].points.origin;
const hasTracks = page.frames.some((one) => one.detections.some((box) => box.track !== undefined));
const canvas = byId("view");
const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

// ---------------------------------------------------------------- data

function decodePoints(number) {
  const { count, origin: centre, step } = page.frames[number].points;
  const text = atob(stored[number].textContent);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const shift = centre.map((value, axis) => value - origin[axis]);
  return { count, step, shift, steps: new Int16Array(bytes.buffer, 0, count * 3), intensity: bytes.subarray(count * 6) };
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
  const number = kind === "g" ? "T" + (index + 1) : record.track === undefined ? String(index + 1) : "#" + record.track;
  return { ...record, key: kind + index, kind, number, centre, corners, nose, length, distance: Math.hypot(x, y) };
}

const state = { frame: 0, score: 0, truth: true, trails: true, byIntensity: false, byTrack: hasTracks, picked: null, followed: null };
let points, detections, truth, boxOf;

function loadFrame(number) {
  state.frame = number;
  points = decodePoints(number);
  detections = page.frames[number].detections.map((record, index) => toBox(record, index, "d"));
  truth = page.frames[number].truth.map((record, index) => toBox(record, index, "g"));
  boxOf = new Map([...detections, ...truth].map((box) => [box.key, box]));
}
loadFrame(0);

const isShown = (box) => (box.kind === "d" ? box.score >= state.score : state.truth);
const shownBoxes = () => [...detections, ...truth].filter(isShown);
const hueOf = (box) => (state.byTrack && box.track !== undefined ? `--track-${box.track % page.trackColours}` : `--class-${box.colour}`);

// ---------------------------------------------------------------- trails

const TRAIL = 30; // length in frames
const STILL = [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0];

function placesOf(number) { // positions of tracks in the map, on the ground
  const one = page.frames[number], m = one.pose || STILL;
  one.places = one.places || new Map(one.detections.filter((box) => box.track !== undefined).map(({ box, track }) => {
    const place = [box[0], box[1], box[2] - box[5] / 2];
    return [track, [0, 4, 8].map((row) => m[row] * place[0] + m[row + 1] * place[1] + m[row + 2] * place[2] + m[row + 3])];
  }));
  return one.places;
}

function trailOf(track) { // in the current LiDAR frame, relative to the origin
  const m = page.frames[state.frame].pose || STILL, trail = [];
  for (let number = Math.max(0, state.frame - TRAIL); number <= state.frame; number++) {
    const place = placesOf(number).get(track);
    if (!place) continue;
    const from = place.map((value, axis) => value - m[axis * 4 + 3]);
    trail.push([0, 1, 2].map((axis) => m[axis] * from[0] + m[axis + 4] * from[1] + m[axis + 8] * from[2] - origin[axis]));
  }
  return trail;
}

// ---------------------------------------------------------------- colours

function readTheme() {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => {
    const hex = parseInt(style.getPropertyValue(name).trim().slice(1), 16);
    return [(hex >> 16) / 255, ((hex >> 8) & 255) / 255, (hex & 255) / 255];
  };
  const tints = {};
  return {
    ground: colour("--ground"), grid: colour("--grid"), truth: colour("--truth"),
    stops: [0, 1, 2, 3, 4].flatMap((i) => colour("--point-" + i)),
    of: (box) => (tints[hueOf(box)] = tints[hueOf(box)] || colour(hueOf(box))),
  };
}

// ---------------------------------------------------------------- camera

const FIELD = Math.tan((50 * Math.PI) / 360);
const camera = { target: [0, 0, 0], distance: 50, yaw: 0, pitch: 0.5 };
const extent = measure();

function measure() {
  const { count, steps, step } = decodePoints(fullest);
  const boxes = page.frames.flatMap((one) => [...one.detections, ...one.truth]).map((one) => one.box);
  const stride = Math.max(1, Math.floor(count / 4000)), axes = [[], []];
  for (let i = 0; i < count; i += stride)
    for (const axis of [0, 1]) axes[axis].push(steps[i * 3 + axis] * step[axis] + origin[axis]);
  for (const box of page.frames.length > 1 && count ? [] : boxes) axes.forEach((values, axis) => values.push(box[axis]));
  const spans = axes.map((values) => {
    values.sort((a, b) => a - b);
    const at = (share) => (values.length ? values[Math.round(share * (values.length - 1))] : 0);
    return [at(0.02), at(0.98)];
  });
  const reach = Math.max(10, ...spans.flat().map(Math.abs));
  const size = Math.max(20, spans[0][1] - spans[0][0], spans[1][1] - spans[1][0]);
  const ground = count || !boxes.length ? page.heights[0] : Math.min(...boxes.map((box) => box[2] - box[5] / 2));
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

function move(right, down) { // unit: height of the canvas
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
  uniform mat4 matrix; uniform vec3 size; uniform vec3 shift; uniform vec3 stops[5]; uniform vec2 heights; uniform vec3 dot; uniform bool byIntensity;
  varying vec3 colour;
  void main() {
    vec3 place = steps * size + shift;
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
    const tint = [...(box.kind === "g" ? theme.truth : theme.of(box)), 1];
    for (const [a, b] of EDGES) lineVertices(out, box.corners[a], box.corners[b], tint);
    lineVertices(out, ...box.nose, tint);
  }
  return out;
}

function trailLines(boxes, theme) {
  const out = [];
  for (const box of boxes.filter((one) => one.track !== undefined)) {
    const trail = trailOf(box.track), tint = [...theme.of(box), 1];
    for (let i = 1; i < trail.length; i++) lineVertices(out, trail[i - 1], trail[i], tint);
  }
  return out;
}

function boxFills(boxes, theme) {
  const out = [];
  for (const box of boxes.filter((one) => one.kind === "d" || one.key === state.picked)) {
    const picked = box.key === state.picked;
    for (const face of picked ? FACES : FRONT)
      for (const corner of [0, 1, 2, 0, 2, 3]) out.push(...box.corners[face[corner]], ...theme.of(box), picked ? 0.22 : 0.3);
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
    load();
    update(true);
  }

  function load() {
    fill("steps", points.steps);
    fill("intensity", points.intensity);
  }

  function update(themeChanged) {
    if (themeChanged) theme = readTheme();
    const shown = shownBoxes();
    const layer = (name, data) => { fill(name, new Float32Array(data)); layers[name] = data.length / 12; };
    layer("grid", gridLines(theme));
    layer("boxes", boxLines(shown.filter((box) => box.kind === "d" && box.key !== state.picked), theme));
    layer("truth", boxLines(shown.filter((box) => box.kind === "g" && box.key !== state.picked), theme));
    layer("picked", boxLines(shown.filter((box) => box.key === state.picked), theme));
    layer("trails", state.trails ? trailLines(shown, theme) : []);
    const faces = boxFills(shown, theme);
    fill("faces", new Float32Array(faces));
    layers.faces = faces.length / 7;
  }

  function drawPoints(view, pixels) {
    const { built, uniform } = draws.points;
    gl.useProgram(built);
    gl.uniformMatrix4fv(uniform.matrix, false, view.matrix);
    gl.uniform3fv(uniform.size, points.step);
    gl.uniform3fv(uniform.shift, points.shift);
    gl.uniform3fv(uniform.stops, theme.stops);
    gl.uniform2fv(uniform.heights, page.heights.map((value) => value - origin[2]));
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
    drawLines(view, "trails", 1.8 * pixels, 0);
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
  return { draw, load, update, prepare };
}

// ---------------------------------------------------------------- labels over the view

function project(view, place) {
  const at = (row) => view.matrix[row] * place[0] + view.matrix[row + 4] * place[1] + view.matrix[row + 8] * place[2] + view.matrix[row + 12];
  const depth = at(3);
  if (depth < view.near) return null;
  return { x: (at(0) / depth * 0.5 + 0.5) * canvas.clientWidth, y: (0.5 - at(1) / depth * 0.5) * canvas.clientHeight, depth };
}

const tags = new Map();
function tagFor(key) {
  if (!tags.has(key)) {
    const tag = document.createElement("span");
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
      return { key: box.key + (picked ? "+" : ""), text, picked, place: top, rise: 18, colour: `var(${hueOf(box)})` };
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
    const tag = tagFor(key);
    if (tag.textContent !== text) tag.textContent = text;
    tag.style.setProperty("--tag", colour);
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
