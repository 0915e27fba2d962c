// Planning of sparse layers on a CPU: single-pass versions of blocks.py, levels.py and tiles.py.
//
// Results are equal bit for bit: they are integers, and costs (doubles) are added in the same order.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {

constexpr int64_t kMostTaps = 16;

int bits_of(uint32_t set) {
  int count = 0;
  for (; set; set &= set - 1) ++count;
  return count;
}

// Return the starts of the cheapest ranges without the first, see tap_ranges.
std::vector<int64_t> ranges(const uint16_t* sets, int64_t count, int64_t taps, double row_cost) {
  const int64_t all = int64_t{1} << taps;
  std::vector<int64_t> counts(all, 0), rows, unions(all);
  for (int64_t row = 0; row < count; ++row) ++counts[sets[row]];
  std::vector<double> best(all);
  for (int64_t set = 0; set < all; ++set) {
    unions[set] = counts[set] > 0 ? set : 0;
    best[set] = static_cast<double>(counts[set] * bits_of(unions[set])) + (counts[set] > 0 ? row_cost : 0.0);
  }
  rows = counts;
  std::vector<std::vector<char>> divided(taps);
  for (int64_t level = 0; level < taps; ++level) {
    const int64_t half = rows.size() / 2;
    divided[level].resize(half);
    for (int64_t at = 0; at < half; ++at) {
      const int64_t together = rows[2 * at] + rows[2 * at + 1];
      const int64_t either = unions[2 * at] | unions[2 * at + 1];
      const double whole = static_cast<double>(together * bits_of(either)) + (together > 0 ? row_cost : 0.0);
      const double halves = best[2 * at] + best[2 * at + 1];
      divided[level][at] = halves < whole;
      best[at] = std::min(halves, whole);
      rows[at] = together;
      unions[at] = either;
    }
    rows.resize(half);
    unions.resize(half);
  }
  std::vector<char> starts(all, 0), reached(1, 1), next;
  for (int64_t level = taps - 1; level >= 0; --level) {
    next.assign(2 * reached.size(), 0);
    for (size_t at = 0; at < reached.size(); ++at) {
      if (!reached[at] || !divided[level][at]) continue;
      starts[(2 * at + 1) << level] = 1;
      next[2 * at] = next[2 * at + 1] = 1;
    }
    reached.swap(next);
  }
  std::vector<int64_t> bounds;
  int64_t before = 0;
  for (int64_t set = 0; set < all; ++set) {
    // A set without rows would repeat a bound, or put one at an end.
    if (starts[set] && before > 0 && before < count && (bounds.empty() || bounds.back() != before)) {
      bounds.push_back(before);
    }
    before += counts[set];
  }
  return bounds;
}

}  // namespace

extern "C" {

// Find the neighbours of cells in a map of rows, and sort the cells by the set of their taps.
//
// Inputs: cells (count, axes), batch and place. The key of a cell is the sum of (cell * multiply + margin) * stride,
// without the margin for the batch. offsets (taps,), of keys. map: row of each key, -1 without a row. inputs: row that
// stands for a missing neighbour; if negative, the cells are those of the map, and their rows are renumbered.
// Outputs: order (count,), sets (count,), frequent (taps,), the most frequent taps first, gathered (count, taps) rows,
// and ordered (count, axes) cells if they are those of the map.
void plan_taps(const int64_t* cells, int64_t count, int64_t axes, const int64_t* multiply, const int64_t* strides,
               int64_t margin, const int64_t* offsets, int64_t taps, int32_t* map, int64_t inputs, int64_t* order,
               uint16_t* sets, int64_t* frequent, int32_t* gathered, int64_t* ordered) {
  const bool own = inputs < 0;
  std::vector<int64_t> keys(count);
  for (int64_t row = 0; row < count; ++row) {
    const int64_t* cell = cells + row * axes;
    int64_t key = cell[0] * multiply[0] * strides[0];
    for (int64_t axis = 1; axis < axes; ++axis) key += (cell[axis] * multiply[axis] + margin) * strides[axis];
    keys[row] = key;
    if (own) map[key] = static_cast<int32_t>(row);
  }
  std::vector<int32_t> found(count * taps);
  int64_t frequency[kMostTaps] = {};
  for (int64_t row = 0; row < count; ++row) {
    const int32_t* at = map + keys[row];
    int32_t* into = found.data() + row * taps;
    for (int64_t tap = 0; tap < taps; ++tap) {
      into[tap] = at[offsets[tap]];
      frequency[tap] += into[tap] >= 0;
    }
  }
  for (int64_t tap = 0; tap < taps; ++tap) frequent[tap] = tap;
  std::stable_sort(frequent, frequent + taps, [&](int64_t a, int64_t b) { return frequency[a] > frequency[b]; });
  uint16_t bit_of[kMostTaps];
  for (int64_t place = 0; place < taps; ++place) bit_of[frequent[place]] = static_cast<uint16_t>(1u << place);
  std::vector<uint16_t> codes(count);
  std::vector<int64_t> starts((int64_t{1} << taps) + 1, 0);
  for (int64_t row = 0; row < count; ++row) {
    const int32_t* from = found.data() + row * taps;
    unsigned code = 0;
    for (int64_t tap = 0; tap < taps; ++tap) code |= from[tap] >= 0 ? bit_of[tap] : 0u;
    codes[row] = static_cast<uint16_t>(code);
    ++starts[code + 1];
  }
  for (size_t set = 1; set < starts.size(); ++set) starts[set] += starts[set - 1];
  std::vector<int32_t> rank(count);
  for (int64_t row = 0; row < count; ++row) {
    const int64_t place = starts[codes[row]]++;
    order[place] = row;
    sets[place] = codes[row];
    rank[row] = static_cast<int32_t>(place);
  }
  const int32_t none = static_cast<int32_t>(own ? count : inputs);
  for (int64_t place = 0; place < count; ++place) {
    const int64_t row = order[place];
    const int32_t* from = found.data() + row * taps;
    int32_t* into = gathered + place * taps;
    for (int64_t tap = 0; tap < taps; ++tap) {
      into[tap] = from[tap] < 0 ? none : own ? rank[from[tap]] : from[tap];
    }
    if (own) {
      map[keys[row]] = static_cast<int32_t>(place);
      std::copy_n(cells + row * axes, axes, ordered + place * axes);
    }
  }
}

// Find the outputs of a strided layer that read an active cell, in the order of their keys.
//
// Inputs: cells (count, axes) in any order; kernel, stride, padding and shape of the outputs, by spatial axis.
// Output: reached (number of outputs or more, axes). Returns the number of outputs.
int64_t plan_reached(const int64_t* cells, int64_t count, int64_t axes, const int64_t* kernel, const int64_t* stride,
                     const int64_t* padding, const int64_t* shape, int64_t batch, int64_t* reached) {
  const int64_t spatial = axes - 1;
  int64_t places = batch;
  std::vector<int64_t> strides(spatial);
  int64_t stretch = 1;
  for (int64_t axis = spatial - 1; axis >= 0; --axis) {
    strides[axis] = stretch;
    stretch *= shape[axis];
  }
  places *= stretch;
  std::vector<uint8_t> used(places + 8, 0);
  std::vector<int64_t> low(spatial), high(spatial), at(spatial);
  for (int64_t row = 0; row < count; ++row) {
    const int64_t* cell = cells + row * axes;
    bool any = true;
    for (int64_t axis = 0; axis < spatial; ++axis) {
      const int64_t furthest = cell[axis + 1] + padding[axis];
      const int64_t nearest = furthest - kernel[axis] + 1;
      low[axis] = nearest <= 0 ? 0 : (nearest + stride[axis] - 1) / stride[axis];
      high[axis] = std::min(furthest / stride[axis], shape[axis] - 1);
      any = any && low[axis] <= high[axis];
    }
    if (!any) continue;
    uint8_t* frame = used.data() + cell[0] * stretch;
    at = low;
    while (true) {
      int64_t line = 0;
      for (int64_t axis = 0; axis + 1 < spatial; ++axis) line += at[axis] * strides[axis];
      for (int64_t last = low[spatial - 1]; last <= high[spatial - 1]; ++last) frame[line + last] = 1;
      int64_t axis = spatial - 2;
      for (; axis >= 0 && at[axis] == high[axis]; --axis) at[axis] = low[axis];
      if (axis < 0) break;
      ++at[axis];
    }
  }
  int64_t made = 0;
  for (int64_t first = 0; first < places; first += 8) {
    uint64_t eight;
    std::memcpy(&eight, used.data() + first, 8);
    if (!eight) continue;
    for (int64_t place = first; place < first + 8; ++place) {
      if (!used[place]) continue;
      int64_t* into = reached + made++ * axes;
      int64_t rest = place % stretch;
      into[0] = place / stretch;
      for (int64_t axis = 0; axis < spatial; ++axis) {
        into[axis + 1] = rest / strides[axis];
        rest %= strides[axis];
      }
    }
  }
  return made;
}

// Divide a table of neighbours into blocks, see even_blocks.
//
// Inputs: sets, frequent, gathered from plan_taps; size, most rows of a block; tree, 1 to divide rows by their taps.
// Outputs: starts (count + 1,), first rows of the blocks; used (count,), taps of each block as bits; rows of the
// blocks that lack a tap, one block after another. Returns the number of blocks.
int64_t plan_blocks(const uint16_t* sets, const int64_t* frequent, const int32_t* gathered, int64_t count,
                    int64_t taps, int64_t size, int64_t tree, double row_cost, int64_t* starts, int64_t* used,
                    int32_t* rows) {
  std::vector<int64_t> bounds{0};
  if (tree) {
    const std::vector<int64_t> cuts = ranges(sets, count, taps, row_cost);
    bounds.insert(bounds.end(), cuts.begin(), cuts.end());
  }
  bounds.push_back(count);
  const int64_t all = (int64_t{1} << taps) - 1;
  int64_t blocks = 0;
  for (size_t at = 0; at + 1 < bounds.size(); ++at) {
    const int64_t start = bounds[at], stop = bounds[at + 1];
    const int64_t parts = (stop - start + size - 1) / size;
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t first = start + (stop - start) * part / parts;
      const int64_t end = start + (stop - start) * (part + 1) / parts;
      unsigned either = 0;
      for (int64_t row = first; row < end; ++row) either |= sets[row];
      int64_t taken = 0;
      for (int64_t place = 0; place < taps; ++place) {
        if (either >> place & 1) taken |= int64_t{1} << frequent[place];
      }
      starts[blocks] = first;
      used[blocks++] = taken;
      if (taken == all) continue;
      int64_t listed[kMostTaps], width = 0;
      for (int64_t tap = 0; tap < taps; ++tap) {
        if (taken >> tap & 1) listed[width++] = tap;
      }
      for (int64_t row = first; row < end; ++row) {
        const int32_t* from = gathered + row * taps;
        for (int64_t place = 0; place < width; ++place) *rows++ = from[listed[place]];
      }
    }
  }
  starts[blocks] = count;
  return blocks;
}

// Dilate a map by one cell, diagonals included.
//
// Input: near (batch, height, width) of 0 and 1.
// Outputs: wider, of the same shape, and its cells (number of cells or more, 3) in the order of their places. Returns
// the number of cells.
int64_t plan_dilated(const uint8_t* near, int64_t batch, int64_t height, int64_t width, uint8_t* wider,
                     int64_t* cells) {
  std::vector<uint8_t> line(width + 2, 0);
  int64_t made = 0;
  for (int64_t frame = 0; frame < batch; ++frame) {
    const uint8_t* map = near + frame * height * width;
    for (int64_t row = 0; row < height; ++row) {
      const uint8_t* middle = map + row * width;
      const uint8_t* above = row > 0 ? middle - width : middle;
      const uint8_t* below = row + 1 < height ? middle + width : middle;
      for (int64_t column = 0; column < width; ++column) {
        line[column + 1] = middle[column] | above[column] | below[column];
      }
      uint8_t* into = wider + (frame * height + row) * width;
      for (int64_t column = 0; column < width; ++column) {
        into[column] = line[column] | line[column + 1] | line[column + 2];
        if (!into[column]) continue;
        int64_t* cell = cells + 3 * made++;
        cell[0] = frame;
        cell[1] = row;
        cell[2] = column;
      }
    }
  }
  return made;
}

// Fill maps with row numbers: listed cells have their own rows, other cells those of an empty scene, margins the row
// of zeros.
//
// Inputs: cells (count, 3); empty (height, width), rows of the empty scene, which has `others` rows; margins above,
// below, left, right. Output: rows (batch, height + above + below, width + left + right).
void plan_rows(const int64_t* cells, int64_t count, const int32_t* empty, int64_t others, int64_t batch,
               int64_t height, int64_t width, const int64_t* margins, int32_t* rows) {
  const int64_t above = margins[0], left = margins[2];
  const int64_t line = width + left + margins[3], map = (height + above + margins[1]) * line;
  const int32_t zero = static_cast<int32_t>(count + others);
  std::fill_n(rows, batch * map, zero);
  for (int64_t frame = 0; frame < batch; ++frame) {
    for (int64_t row = 0; row < height; ++row) {
      int32_t* into = rows + frame * map + (row + above) * line + left;
      const int32_t* from = empty + row * width;
      for (int64_t column = 0; column < width; ++column) into[column] = from[column] + static_cast<int32_t>(count);
    }
  }
  for (int64_t row = 0; row < count; ++row) {
    const int64_t* cell = cells + 3 * row;
    rows[cell[0] * map + (cell[1] + above) * line + cell[2] + left] = static_cast<int32_t>(row);
  }
}

// Divide the outputs of a layer into tiles, see tile_plan.
//
// Inputs: cells (count, 3), the outputs; shape, tiles down and across a map; bits, logarithm of the cells of a tile
// along each axis; rows of the inputs by place, with strides for batch, row and column and the first cell at origin;
// most, largest number of cells times channels that a part reads.
// Outputs: reads, by part, place in the tile, and tile; places (count,); numbers: of tiles, and of tiles per part.
void plan_tiles(const int64_t* cells, int64_t count, int64_t batch, const int64_t* shape, const int64_t* bits,
                const int32_t* rows, const int64_t* strides, int64_t origin, int64_t channels, int64_t most,
                int32_t* reads, int32_t* places, int64_t* numbers) {
  const int64_t down = shape[0], across = shape[1];
  const int64_t height = int64_t{1} << bits[0], width = int64_t{1} << bits[1];
  std::vector<int32_t> number(batch * down * across, -1);
  for (int64_t row = 0; row < count; ++row) {
    const int64_t* cell = cells + 3 * row;
    number[(cell[0] * down + (cell[1] >> bits[0])) * across + (cell[2] >> bits[1])] = 0;
  }
  std::vector<int64_t> corners;
  for (int64_t key = 0; key < static_cast<int64_t>(number.size()); ++key) {
    if (number[key] < 0) continue;
    number[key] = static_cast<int32_t>(corners.size());
    const int64_t frame = key / (down * across), inside = key % (down * across);
    corners.push_back(frame * strides[0] + origin - strides[1] - strides[2] +
                      inside / across * height * strides[1] + inside % across * width * strides[2]);
  }
  const int64_t tiles = corners.size(), read = (height + 2) * (width + 2);
  const int64_t parts = std::max<int64_t>(1, (tiles * read * channels + most - 1) / most);
  const int64_t size = std::max<int64_t>(1, (tiles + parts - 1) / parts);
  for (int64_t first = 0; first < tiles; first += size) {
    const int64_t end = std::min(first + size, tiles);
    for (int64_t dy = 0; dy < height + 2; ++dy) {
      for (int64_t dx = 0; dx < width + 2; ++dx) {
        const int32_t* from = rows + dy * strides[1] + dx * strides[2];
        for (int64_t tile = first; tile < end; ++tile) *reads++ = from[corners[tile]];
      }
    }
  }
  for (int64_t row = 0; row < count; ++row) {
    const int64_t* cell = cells + 3 * row;
    const int64_t tile = number[(cell[0] * down + (cell[1] >> bits[0])) * across + (cell[2] >> bits[1])];
    const int64_t within = ((cell[1] & (height - 1)) << bits[1]) + (cell[2] & (width - 1));
    const int64_t first = tile / size * size;
    places[row] = static_cast<int32_t>(first * height * width + within * std::min(size, tiles - first) + tile - first);
  }
  numbers[0] = tiles;
  numbers[1] = size;
}

}  // extern "C"
