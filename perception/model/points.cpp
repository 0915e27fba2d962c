// Sort points by pillar, and crop points to boxes, on a CPU: single-pass versions of pillars.py and refine.py.
//
// They run the same floating-point operations in the same order, so results are equal bit for bit. No fused
// multiply-add, which would round differently from torch.
//
// flags: -ffp-contract=off

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {

constexpr int64_t kDigestBits = 39;

struct Entry {
  uint64_t joint;  // Key of the pillar, then a digest of the point.
  int64_t number;  // Number of the point among those in range.
};

uint64_t digest_of(const float* point, int64_t width) {
  uint64_t digest = 0;
  for (int64_t column = 0; column < width; ++column) {
    int32_t bits;
    std::memcpy(&bits, point + column, 4);
    digest = (digest ^ static_cast<uint64_t>(static_cast<int64_t>(bits))) * 0x9E3779B97F4A7C1u + 0x7F4A7C15u;
    digest ^= static_cast<uint64_t>(static_cast<int64_t>(digest) >> 29);
  }
  return digest & ((uint64_t{1} << kDigestBits) - 1);
}

// Stable radix sort by the joint keys, 11 bits per pass.
void sort_entries(std::vector<Entry>& entries) {
  constexpr int kBits = 11, kDigits = 6;
  std::vector<int64_t> counts(kDigits << kBits, 0);
  for (const Entry& entry : entries) {
    for (int digit = 0; digit < kDigits; ++digit) {
      ++counts[(digit << kBits) + (entry.joint >> (digit * kBits) & ((1 << kBits) - 1))];
    }
  }
  std::vector<Entry> other(entries.size());
  for (int digit = 0; digit < kDigits; ++digit) {
    int64_t* start = counts.data() + (digit << kBits);
    int64_t before = 0, most = 0;
    for (int value = 0; value < 1 << kBits; ++value) {
      const int64_t own = start[value];
      most = std::max(most, own);
      start[value] = before;
      before += own;
    }
    if (most == before) continue;  // All digits are equal.
    for (const Entry& entry : entries) {
      other[start[entry.joint >> (digit * kBits) & ((1 << kBits) - 1)]++] = entry;
    }
    entries.swap(other);
  }
}

}  // namespace

extern "C" {

// Sort points by pillar, see make_pillars.
//
// Inputs: points (count, width), frame by frame; sizes (frames,) points per frame; range: x, y, z minimum, then maximum
// (exclusive); shape: rows and columns of the grid; strides: key strides of frame, row and column; margin: cells with
// keys before the first.
// Outputs: invalid (frames,) points that are not finite. For points in range: sorted (count, width), frame and row
// (pillar) of each, and unsorted (count,) pillars in input order. For pillars: counts, keys and cells (count, 3), and
// their number in pillars. clash: different points of a pillar have the same digest. Returns the points in range.
int64_t sort_points(const float* points, int64_t width, const int64_t* sizes, int64_t frames, const float* range,
                    float cell, const int64_t* shape, const int64_t* strides, int64_t margin, int64_t* invalid, float* sorted,
                    int64_t* frame_of, int64_t* row_of, int64_t* unsorted, int64_t* counts, int64_t* keys,
                    int32_t* cells, int64_t* pillars, int64_t* clash) {
  std::vector<Entry> entries;
  std::vector<const float*> in_range;
  const float* point = points;
  for (int64_t frame = 0; frame < frames; ++frame) {
    invalid[frame] = 0;
    for (const float* end = point + width * sizes[frame]; point < end; point += width) {
      const float x = point[0], y = point[1], z = point[2];
      if (!std::all_of(point, point + width, [](float value) { return std::isfinite(value); })) {
        ++invalid[frame];
        continue;
      }
      if (!(x >= range[0] && y >= range[1] && z >= range[2] && x < range[3] && y < range[4] && z < range[5])) continue;
      const float row = std::floor((y - range[1]) / cell), column = std::floor((x - range[0]) / cell);
      const int64_t iy = static_cast<int64_t>(std::min(std::max(row, 0.0f), static_cast<float>(shape[0] - 1)));
      const int64_t ix = static_cast<int64_t>(std::min(std::max(column, 0.0f), static_cast<float>(shape[1] - 1)));
      const uint64_t key = frame * strides[0] + (iy + margin) * strides[1] + (ix + margin) * strides[2];
      entries.push_back({key << kDigestBits | digest_of(point, width), static_cast<int64_t>(in_range.size())});
      in_range.push_back(point);
    }
  }
  const int64_t kept = entries.size();
  sort_entries(entries);
  *clash = 0;
  int64_t made = 0;
  for (int64_t at = 0; at < kept; ++at) {
    const Entry& entry = entries[at];
    const float* from = in_range[entry.number];
    const int64_t key = entry.joint >> kDigestBits;
    if (at == 0 || key != keys[made - 1]) {
      keys[made] = key;
      counts[made] = 0;
      cells[3 * made] = static_cast<int32_t>(key / strides[0]);
      cells[3 * made + 1] = static_cast<int32_t>(key % strides[0] / strides[1] - margin);
      cells[3 * made + 2] = static_cast<int32_t>(key % strides[1] - margin);
      ++made;
    } else if (entry.joint == entries[at - 1].joint && std::memcmp(from, in_range[entries[at - 1].number], 4 * width)) {
      *clash = 1;
    }
    ++counts[made - 1];
    std::copy_n(from, width, sorted + width * at);
    frame_of[at] = cells[3 * (made - 1)];
    row_of[at] = made - 1;
    unsorted[entry.number] = made - 1;
  }
  *pillars = made;
  return kept;
}

// Crop points to boxes, see crop_points.
//
// Inputs: boxes (count, 7), cosine and sine of their yaw, and half sizes with margin (count, 3); start, length: runs
// of points (count, runs); most: largest number of candidates per box, more are thinned to every second, third, ...
// Outputs: inside, local and rows of the points, and counts (count,). Returns the number of points inside.
int64_t crop_points(const float* points, int64_t width, const float* boxes, const float* cosine, const float* sine,
                    const float* half, const int64_t* start, const int64_t* length, int64_t count, int64_t runs, int64_t most,
                    float* inside, float* local, int64_t* rows, int64_t* counts) {
  int64_t made = 0;
  for (int64_t box = 0; box < count; ++box) {
    const float* own = boxes + 7 * box;
    const float* limit = half + 3 * box;
    const float c = cosine[box], s = sine[box];
    int64_t candidates = 0;
    for (int64_t run = 0; run < runs; ++run) candidates += length[box * runs + run];
    const int64_t step = std::max<int64_t>((candidates + most - 1) / most, 1);
    const int64_t before = made;
    int64_t next = 0, passed = 0;  // Next candidate, and first candidate of the run.
    for (int64_t run = 0; run < runs; ++run) {
      const int64_t first = start[box * runs + run], many = length[box * runs + run];
      for (; next < passed + many; next += step) {
        const float* point = points + width * (first + next - passed);
        const float dx = point[0] - own[0], dy = point[1] - own[1], z = point[2] - own[2];
        const float x = c * dx + s * dy, y = c * dy - s * dx;
        if (!(std::fabs(x) <= limit[0] && std::fabs(y) <= limit[1] && std::fabs(z) <= limit[2])) continue;
        std::copy_n(point, width, inside + width * made);
        local[3 * made] = x;
        local[3 * made + 1] = y;
        local[3 * made + 2] = z;
        rows[made++] = box;
      }
      passed += many;
    }
    counts[box] = made - before;
  }
  return made;
}

}  // extern "C"
