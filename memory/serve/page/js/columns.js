// All memories as columns of numbers: what the map, the list and the time slider look at.

const TYPES = {
  float64: Float64Array, float32: Float32Array, uint32: Uint32Array, uint16: Uint16Array, uint8: Uint8Array,
};
const CODED = { map: "maps", label: "labels", kind: "kinds", state: "states" };
const WIDE = {
  id: Float64Array, first: Float64Array, last: Float64Array, x: Float64Array, y: Float64Array,
  importance: Float32Array, count: Uint32Array, map: Uint32Array, label: Uint32Array,
  kind: Uint8Array, state: Uint8Array, marked: Uint8Array,
};

/** The header and the columns of an answer of /api/map, without copying what can be looked at in place. */
export function decode(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const columns = {};
  for (const { name, type, length: rows, at } of header.columns) columns[name] = new TYPES[type](buffer, at, rows);
  header.origin.forEach((start, axis) => {
    const name = axis ? "y" : "x";
    const far = new Float64Array(columns[name].length);
    for (let row = 0; row < far.length; row += 1) far[row] = columns[name][row] + start;
    columns[name] = far;
  });
  return { header, columns };
}

/** Memories by row; rows change their place when something changes, ids do not. */
export class Columns {
  constructor() {
    this.version = null;
    this.total = 0;
    this.newest = -Infinity;
    this.names = { maps: [], labels: [], kinds: [], states: [] };
    this.mapCounts = [];
    this.rows = Object.fromEntries(Object.entries(WIDE).map(([name, type]) => [name, new type(0)]));
    this.places = null;
  }

  /** How many there are. */
  get length() {
    return this.rows.id.length;
  }

  /** Take in an answer: everything, or what changed. */
  take(buffer) {
    const { header, columns } = decode(buffer);
    if (header.base === null) {
      this.names = { maps: header.maps, labels: header.labels, kinds: header.kinds, states: header.states };
      this.rows = columns;
      this.total = header.total;
    } else {
      this.merge(header, columns);
    }
    this.mapCounts = header.map_counts;
    this.version = header.version;
    this.places = null;
    this.newest = this.rows.last.reduce((last, at) => (at > last ? at : last), -Infinity);
  }

  merge(header, columns) {
    // Names only ever come to the end of a list while a service runs, and changes are of the same service.
    this.names = { maps: header.maps, labels: header.labels, kinds: header.kinds, states: header.states };
    const touched = new Set(columns.id);
    for (const id of columns.removed) touched.add(id);
    const before = this.length;
    const kept = new Uint32Array(before);
    let rest = 0;
    for (let row = 0; row < before; row += 1) if (!touched.has(this.rows.id[row])) kept[rest++] = row;
    const added = columns.id.length;
    const made = {};
    for (const [name, type] of Object.entries(WIDE)) {
      const from = this.rows[name];
      const to = new type(rest + added);
      for (let row = 0; row < rest; row += 1) to[row] = from[kept[row]];
      to.set(columns[name], rest);
      made[name] = to;
    }
    this.rows = made;
    this.total += rest + added - before;
  }

  /** The row of an id, or -1. */
  rowOf(id) {
    if (!this.places) {
      this.places = new Map();
      this.rows.id.forEach((known, row) => this.places.set(known, row));
    }
    return this.places.get(id) ?? -1;
  }

  /** The string that a row has in a coded column. */
  text(column, row) {
    return this.names[CODED[column]][this.rows[column][row]] ?? "";
  }

  /** First and last time of the rows: [Infinity, -Infinity] where there are none. */
  span(rows) {
    let first = Infinity;
    let last = -Infinity;
    for (const row of rows) {
      if (this.rows.first[row] < first) first = this.rows.first[row];
      if (this.rows.last[row] > last) last = this.rows.last[row];
    }
    return [first, last];
  }

  /** The box around rows, as [x0, y0, x1, y1]; null where none has a place. */
  box(rows) {
    const { x, y } = this.rows;
    const box = [Infinity, Infinity, -Infinity, -Infinity];
    for (const row of rows) {
      if (x[row] < box[0]) box[0] = x[row];
      if (y[row] < box[1]) box[1] = y[row];
      if (x[row] > box[2]) box[2] = x[row];
      if (y[row] > box[3]) box[3] = y[row];
    }
    return box[0] <= box[2] ? box : null;
  }

  /** How many rows there are of each string of a coded column. */
  counts(column, rows) {
    const found = new Uint32Array(this.names[CODED[column]].length);
    const codes = this.rows[column];
    for (const row of rows) found[codes[row]] += 1;
    return found;
  }

  /** Rows that pass filters, but for the time: each a set of strings or null, `map` a string or null. */
  passing({ map, kinds, states, labels, marked }) {
    const tables = [["kind", kinds], ["state", states], ["label", labels], ["map", map === null ? null : new Set([map])]]
      .filter(([, wanted]) => wanted)
      .map(([column, wanted]) => [this.rows[column], Uint8Array.from(this.names[CODED[column]], (name) => wanted.has(name) ? 1 : 0)]);
    if (marked) tables.push([this.rows.marked, Uint8Array.of(0, 1)]);
    const found = new Uint32Array(this.length);
    let size = 0;
    rows: for (let row = 0; row < found.length; row += 1) {
      for (const [codes, passes] of tables) if (!passes[codes[row]]) continue rows;
      found[size++] = row;
    }
    return found.subarray(0, size);
  }

  /** Those of the rows that were seen within a time: their stretch overlaps it. */
  during(rows, from, to) {
    const { first, last } = this.rows;
    return rows.filter((row) => last[row] >= from && first[row] <= to);
  }

  /** Those of the rows in a box; what is at no known place is in none. */
  within(rows, [x0, y0, x1, y1]) {
    const { x, y } = this.rows;
    return rows.filter((row) => x[row] >= x0 && x[row] <= x1 && y[row] >= y0 && y[row] <= y1);
  }

  /** Those of the rows whose place is not known. */
  unplaced(rows) {
    return rows.filter((row) => Number.isNaN(this.rows.x[row]));
  }

  /** The first few rows in an order, without sorting the rest. */
  top(rows, few, order, [x, y] = [0, 0]) {
    const { last, importance, id } = this.rows;
    const keys = {
      newest: (row) => last[row],
      oldest: (row) => -this.rows.first[row],
      important: (row) => (Number.isNaN(importance[row]) ? -1 : importance[row]),
      // What is at no known place comes last.
      closest: (row) => (Number.isNaN(this.rows.x[row]) ? -Infinity : -((this.rows.x[row] - x) ** 2 + (this.rows.y[row] - y) ** 2)),
    };
    const key = keys[order];
    const better = (a, b) => b[0] - a[0] || id[b[1]] - id[a[1]];
    let best = [];
    let least = -Infinity;
    for (const row of rows) {
      const value = key(row);
      if (best.length >= few && value <= least) continue;
      best.push([value, row]);
      // Sorted only now and then: the list may grow to twice its size meanwhile.
      if (best.length >= 2 * few) {
        best = best.sort(better).slice(0, few);
        least = best[few - 1][0];
      }
    }
    return best.sort(better).slice(0, few).map(([, row]) => row);
  }
}
