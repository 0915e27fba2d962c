// Memories that are too close to be told apart become one mark.
//
// A grid over the map, made anew for each view: a pass over 100,000 rows takes a few milliseconds, so that the
// marks follow the time slider as it moves. An index over zoom levels would have to be built anew each time.

/**
 * Marks for rows: {x, y, size, row, mixed}; `row` is one of them, `size` how many, `mixed` whether of several labels.
 * @param {import("./columns.js").Columns} columns
 * @param {Uint32Array} rows in view
 * @param {number} cell side of a cell in metres; cells keep their place when the map is moved
 * @param {number} reach marks closer than this, in metres, are joined
 */
export function cluster(columns, rows, cell, reach) {
  const { x, y, last, label } = columns.rows;
  const cells = new Map();
  for (const row of rows) {
    // Exact for any view: a view is at most a few thousand cells wide, and doubles hold 2^53.
    const key = Math.floor(x[row] / cell) * 67108864 + Math.floor(y[row] / cell);
    const known = cells.get(key);
    if (known === undefined) {
      cells.set(key, { x: x[row], y: y[row], size: 1, row, mixed: false });
    } else {
      known.size += 1;
      known.x += x[row];
      known.y += y[row];
      known.mixed ||= label[row] !== label[known.row];
      if (last[row] > last[known.row]) known.row = row;
    }
  }
  const marks = [...cells.values()];
  for (const mark of marks) {
    mark.x /= mark.size;
    mark.y /= mark.size;
    mark.cell = cell;
  }
  return join(marks, reach, label);
}

/** Joins marks that would overlap, the larger ones first. */
function join(marks, reach, label) {
  marks.sort((a, b) => b.size - a.size || a.row - b.row);
  const kept = [];
  const near = new Map();
  const key = (i, j) => i * 67108864 + j;
  for (const mark of marks) {
    const i = Math.floor(mark.x / reach);
    const j = Math.floor(mark.y / reach);
    const close = around(near, key, i, j).find((other) => (other.x - mark.x) ** 2 + (other.y - mark.y) ** 2 < reach * reach);
    if (close) {
      // The place stays that of the larger one: what moved might overlap with another in turn.
      close.size += mark.size;
      close.mixed ||= mark.mixed || label[mark.row] !== label[close.row];
      continue;
    }
    kept.push(mark);
    const here = key(i, j);
    near.has(here) ? near.get(here).push(mark) : near.set(here, [mark]);
  }
  return kept;
}

function around(near, key, i, j) {
  const found = [];
  for (let a = i - 1; a <= i + 1; a += 1) {
    for (let b = j - 1; b <= j + 1; b += 1) found.push(...(near.get(key(a, b)) ?? []));
  }
  return found;
}
