// Measure the columns of a point cloud on a CPU: the single-pass version of reference.py.
//
// It runs the same floating-point operations in the same order, so results are equal bit for bit. No fused
// multiply-add, which would round differently from numpy.
//
// flags: -ffp-contract=off

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Entry {
  uint64_t height_and_y;  // Numbers whose order is that of z, then y.
  uint32_t x;
  int32_t point;
};

// A number whose order is that of the value; -0 and 0 are equal.
uint32_t ordered(float value) {
  value += 0.0f;
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits >> 31 ? ~bits : bits | uint32_t{1} << 31;
}

bool before(const Entry& one, const Entry& other) {
  return one.height_and_y != other.height_and_y ? one.height_and_y < other.height_and_y : one.x < other.x;
}

double cell_of(float value, double size, double reach) {
  return std::min(std::max(std::floor(value / size), -reach), reach);
}

}  // namespace

extern "C" {

// Measure the columns of a grid of (2 reach + 1) squared cells of a size.
//
// Inputs: points (count, width), x, y and z first; near (cells,) is 1 for cells within range; least: smallest height of
// a column; ground: thickness of the ground above the lowest point.
// Outputs: height (cells,) of each column, number (cells,) of its points above the ground, and their moments (6, cells):
// mean x, y, z, and mean of the squared offsets xx, yy, xy. Returns 0, or -1 if a point is not finite.
int64_t measure_columns(const float* points, int64_t count, int64_t width, double size, int64_t reach, const uint8_t* near,
                        double least, double ground, double* height, int64_t* number, double* moments) {
  const int64_t side = 2 * reach + 1, cells = side * side;
  std::vector<int32_t> cell(count);
  std::vector<double> low(cells, kInfinity), high(cells, -kInfinity);
  for (int64_t row = 0; row < count; ++row) {
    const float* point = points + row * width;
    if (!std::isfinite(point[0]) || !std::isfinite(point[1]) || !std::isfinite(point[2])) return -1;
    const double x = cell_of(point[0], size, reach), y = cell_of(point[1], size, reach), z = point[2];
    const int32_t own = cell[row] = static_cast<int32_t>(x * side + y) + (side + 1) * reach;
    low[own] = std::min(low[own], z);
    high[own] = std::max(high[own], z);
  }
  for (int64_t own = 0; own < cells; ++own) {
    height[own] = high[own] - low[own];
    low[own] = near[own] && height[own] >= least ? low[own] + ground : kInfinity;
    number[own] = 0;
  }
  for (int64_t row = 0; row < count; ++row) number[cell[row]] += points[row * width + 2] > low[cell[row]];

  // Entries by column; sums do not depend on the order of the points because each column is sorted.
  std::vector<int64_t> end(cells);
  int64_t total = 0;
  for (int64_t own = 0; own < cells; ++own) {
    end[own] = total;
    total += number[own];
  }
  std::vector<Entry> entries(total);
  for (int64_t row = 0; row < count; ++row) {
    const float* point = points + row * width;
    if (!(point[2] > low[cell[row]])) continue;
    const uint64_t z = ordered(point[2]);
    entries[end[cell[row]]++] = {z << 32 | ordered(point[1]), ordered(point[0]), static_cast<int32_t>(row)};
  }
  for (int64_t own = 0; own < cells; ++own) {
    Entry* const last = entries.data() + end[own];
    Entry* const first = last - number[own];
    // Sensors store points ring by ring: a stable sort makes use of ordered runs.
    std::stable_sort(first, last, before);
    const double share = std::max<int64_t>(number[own], 1);
    double sums[6] = {};
    for (const Entry* entry = first; entry != last; ++entry) {
      for (int axis = 0; axis < 3; ++axis) sums[axis] += points[entry->point * width + axis];
    }
    for (int axis = 0; axis < 3; ++axis) sums[axis] /= share;
    for (const Entry* entry = first; entry != last; ++entry) {
      const double x = points[entry->point * width] - sums[0], y = points[entry->point * width + 1] - sums[1];
      sums[3] += x * x;
      sums[4] += y * y;
      sums[5] += x * y;
    }
    for (int axis = 3; axis < 6; ++axis) sums[axis] /= share;
    for (int moment = 0; moment < 6; ++moment) moments[moment * cells + own] = sums[moment];
  }
  return 0;
}

}  // extern "C"
