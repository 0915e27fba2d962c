// Search in the hash tables of memory/index/lsh.py, or in a list of rows, one query after another.
//
// This code and lsh.py compare exactly the same rows: both compute costs with the same operations in the same
// order, and all later steps count whole numbers. Projections and scores may differ in their last bits. Their sums
// run in one order for any number of queries, so concurrent queries do not change an answer.
// Products and sums are not contracted, so that every compiler rounds the same way.
//
// flags: -ffp-contract=off

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

// Compile functions for AVX2 too; the loader chooses the variant that the processor supports.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define WIDEST __attribute__((target_clones("avx2", "default")))
#else
#define WIDEST
#endif
#define WITHIN static inline __attribute__((always_inline))

extern "C" {

// All tables over a range of rows, see memory/index/buckets.py.
struct Buckets {
  const void* offsets;
  const int32_t* postings;
  int64_t start;
  int64_t address_bits;
  int64_t wide;  // 1 if offsets have 64 bits, else 0.
};

// (rows, width) numbers: the first `count` rows are in `fixed`, the others in `grown`.
struct Rows {
  const void* fixed;
  const void* grown;
  int64_t count;  // Rows in `fixed`.
};

struct Index {
  const float* mixing;      // (2, size) signs, see memory/index/hashing.py
  const float* signs;       // (groups, size, kSets): a group is kSets rotations
  const int32_t* pairs;     // (tables, 2) functions
  const Buckets* buckets;
  Rows sketches;  // two words each
  int64_t dim, size, groups, functions, width, bits, tables, parts, rows, bucket_limit;
};

}  // extern "C"

namespace {

constexpr int64_t kSketchBits = 128;

template <typename T>
WITHIN const T* row_of(const Rows& rows, int64_t row, int64_t width) {
  return row < rows.count ? static_cast<const T*>(rows.fixed) + row * width
                          : static_cast<const T*>(rows.grown) + (row - rows.count) * width;
}

// Map a float that is not negative to an integer, so that integers have the order of the floats.
WITHIN uint32_t key_of(float number) {
  uint32_t bits;
  std::memcpy(&bits, &number, 4);
  return bits;
}

// Numbers per step. It is the same on every processor, so that sums have one order. Vector types have the width of
// real registers, because compilers split wider ones into single numbers.
constexpr int64_t kLanes = 16;
#if defined(__x86_64__)
constexpr int64_t kWide = 8;
#else
constexpr int64_t kWide = 4;
#endif
constexpr int64_t kParts = kLanes / kWide;
typedef float Floats __attribute__((vector_size(4 * kWide)));
typedef int32_t Words __attribute__((vector_size(4 * kWide)));
typedef uint16_t Halves __attribute__((vector_size(2 * kWide)));

// Convert finite half-precision numbers; all of them are exact in single precision.
WITHIN void widen(const Halves& halves, Floats& found) {
  const Words bits = __builtin_convertvector(halves, Words);
  const Words rest = bits & 0x7fff;
  const Words usual = (rest << 13) + (112 << 23);
  const Floats small = __builtin_convertvector(rest, Floats) * 0x1p-24f;
  const Words number = rest < 0x400 ? reinterpret_cast<Words>(small) : usual;
  found = reinterpret_cast<Floats>(number | (bits & 0x8000) << 16);
}

// Add the products of kLanes numbers.
WITHIN void add_products(const uint16_t* row, const float* query, Floats* sums) {
#pragma GCC unroll 4
  for (int64_t part = 0; part < kParts; ++part) {
    Halves halves;
    Floats wide, number;
    std::memcpy(&halves, row + part * kWide, sizeof halves);
    std::memcpy(&number, query + part * kWide, sizeof number);
    widen(halves, wide);
    sums[part] += wide * number;
  }
}

// Return the dot product, summed in a fixed order.
WITHIN float product(const uint16_t* row, const float* query, int64_t dim) {
  Floats sums[kParts] = {};
  int64_t at = 0;
  for (; at + kLanes <= dim; at += kLanes) add_products(row + at, query + at, sums);
  if (at < dim) {
    uint16_t halves[kLanes] = {};
    float numbers[kLanes] = {};
    std::memcpy(halves, row + at, (dim - at) * sizeof *row);
    std::memcpy(numbers, query + at, (dim - at) * sizeof *query);
    add_products(halves, numbers, sums);
  }
  float lanes[kLanes];
  std::memcpy(lanes, sums, sizeof lanes);
  for (int64_t half = kLanes / 2; half; half /= 2)
    for (int64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  return lanes[0];
}

// Rotations that are computed side by side, one in each lane.
constexpr int64_t kSets = 8;

// Replace two vectors by their sum and their difference.
WITHIN void add_and_subtract(Floats& a, Floats& b) {
  const Floats sum = a + b;
  b = a - b;
  a = sum;
}

// Multiply kWide columns of (size, kSets) numbers by the Hadamard matrix of -1 and 1. Two levels at a time halve the
// reads and writes; each sum is the same as with one level at a time.
WITHIN void multiply_hadamard(float* numbers, int64_t size) {
  Floats a, b, c, d;
  int64_t half = 1;
  for (; 4 * half <= size; half *= 4)
    for (int64_t first = 0; first < size; first += 4 * half)
      for (int64_t at = first; at < first + half; ++at) {
        float* place = numbers + at * kSets;
        const int64_t step = half * kSets;
        std::memcpy(&a, place, sizeof a);
        std::memcpy(&b, place + step, sizeof b);
        std::memcpy(&c, place + 2 * step, sizeof c);
        std::memcpy(&d, place + 3 * step, sizeof d);
        add_and_subtract(a, b);
        add_and_subtract(c, d);
        add_and_subtract(a, c);
        add_and_subtract(b, d);
        std::memcpy(place, &a, sizeof a);
        std::memcpy(place + step, &b, sizeof b);
        std::memcpy(place + 2 * step, &c, sizeof c);
        std::memcpy(place + 3 * step, &d, sizeof d);
      }
  for (; half < size; half *= 2)
    for (int64_t first = 0; first < size; first += 2 * half)
      for (int64_t at = first; at < first + half; ++at) {
        float *place = numbers + at * kSets, *other = place + half * kSets;
        std::memcpy(&a, place, sizeof a);
        std::memcpy(&b, other, sizeof b);
        add_and_subtract(a, b);
        std::memcpy(place, &a, sizeof a);
        std::memcpy(other, &b, sizeof b);
      }
}

// The same for one rotation.
WITHIN void multiply_hadamard_alone(float* numbers, int64_t size) {
  for (int64_t half = 1; half < size; half *= 2)
    for (int64_t first = 0; first < size; first += 2 * half) {
      float *a = numbers + first, *b = a + half;
      for (int64_t at = 0; at < half; ++at) {
        const float sum = a[at] + b[at];
        b[at] = a[at] - b[at];
        a[at] = sum;
      }
    }
}

struct Rotated {
  std::vector<float> mixed, numbers;  // (size) and (size, kSets)
};

// Apply the rotations that all sets share.
WITHIN void mix(const Index& index, const float* vector, Rotated& room) {
  room.mixed.assign(index.size, 0.0f);
  room.numbers.resize(index.size * kSets);
  std::copy(vector, vector + index.dim, room.mixed.begin());
  for (int64_t round = 0; round < 2; ++round) {
    for (int64_t at = 0; at < index.size; ++at) room.mixed[at] *= index.mixing[round * index.size + at];
    multiply_hadamard_alone(room.mixed.data(), index.size);
  }
}

// Apply the rotations of one group.
WITHIN const float* rotate(const Index& index, int64_t group, Rotated& room) {
  const float* signs = index.signs + group * index.size * kSets;
  float* numbers = room.numbers.data();
  for (int64_t at = 0; at < index.size * kSets; at += kWide) {
    Floats part;
    std::memcpy(&part, signs + at, sizeof part);
    part *= room.mixed[at / kSets];
    std::memcpy(numbers + at, &part, sizeof part);
  }
  for (int64_t lane = 0; lane < kSets; lane += kWide) multiply_hadamard(numbers + lane, index.size);
  return numbers;
}

// Project a query: set after set.
WITHIN void project(const Index& index, const float* query, Rotated& room, float* projected) {
  mix(index, query, room);
  for (int64_t group = 0; group < index.groups; ++group) {
    const float* numbers = rotate(index, group, room);
    for (int64_t lane = 0; lane < kSets; ++lane)
      for (int64_t at = 0; at < index.size; ++at)
        projected[(group * kSets + lane) * index.size + at] = numbers[at * kSets + lane];
  }
}

// The largest numbers of each lane, by size, and their places; the first of equal ones.
struct Largest {
  float sizes[kSets], numbers[kSets];
  int32_t places[kSets];
};

WITHIN void find_largest(const float* rotated, int64_t count, Largest& found) {
  for (int64_t lane = 0; lane < kSets; lane += kWide) {
    Floats sizes = Floats{} - 1.0f, numbers{};
    Words places{};
    for (int64_t at = 0; at < count; ++at) {
      Floats number;
      std::memcpy(&number, rotated + at * kSets + lane, sizeof number);
      const Floats size = number < 0.0f ? -number : number;
      const Words larger = size > sizes;
      sizes = larger ? size : sizes;
      numbers = larger ? number : numbers;
      places = larger ? Words{} + static_cast<int32_t>(at) : places;
    }
    std::memcpy(found.sizes + lane, &sizes, sizeof sizes);
    std::memcpy(found.numbers + lane, &numbers, sizeof numbers);
    std::memcpy(found.places + lane, &places, sizeof places);
  }
}

// Write the values of the functions of one group; `best` has the largest size so far of each function.
WITHIN void find_codes(const Index& index, const float* numbers, int64_t group, float* best, uint16_t* codes) {
  const int64_t stretch = std::min(index.size, index.width);
  for (int64_t first = 0; first < index.size; first += stretch) {
    Largest largest;
    find_largest(numbers + first * kSets, stretch, largest);
    for (int64_t lane = 0; lane < kSets; ++lane) {
      const int64_t start = (group * kSets + lane) * index.size + first;
      const int64_t function = start / index.width;
      if (function >= index.functions || !(largest.sizes[lane] > best[function])) continue;
      best[function] = largest.sizes[lane];
      const int64_t axis = start % index.width + largest.places[lane];
      codes[function] = static_cast<uint16_t>(2 * axis + (largest.numbers[lane] < 0.0f));
    }
  }
}

// Return the number at a place of the rising order; numbers are not negative. Return 0 without numbers.
WITHIN float ranked_at(const std::vector<float>& numbers, int64_t place, std::vector<uint32_t>& counts) {
  // Radix selection: upper, middle, then lower bits.
  uint32_t known = 0, mask = 0;
  for (const auto& [shift, bits] : {std::pair{21, 11}, std::pair{10, 11}, std::pair{0, 10}}) {
    counts.assign(int64_t{1} << bits, 0);
    const uint32_t low = (1u << bits) - 1;
    for (const float number : numbers) {
      const uint32_t key = key_of(number);
      counts[key >> shift & low] += (key & mask) == known;
    }
    uint32_t digit = 0;
    while (place >= counts[digit]) place -= counts[digit++];
    known |= digit << shift;
    mask |= low << shift;
  }
  float found;
  std::memcpy(&found, &known, 4);
  return found;
}

// Return the smallest of the `count` largest numbers; numbers are not negative. Works bit by bit, without branches.
WITHIN float least_of_largest(const float* numbers, int64_t size, int32_t count) {
  int32_t found = 0;
  for (int32_t bit = 1 << 30; bit; bit >>= 1) {
    const int32_t tried = found | bit;
    int32_t larger = 0;
    for (int64_t at = 0; at < size; ++at) {
      int32_t key;  // Signed, because some processors compare only signed integers.
      std::memcpy(&key, numbers + at, 4);
      larger += key >= tried;
    }
    found = larger >= count ? tried : found;
  }
  float least;
  std::memcpy(&least, &found, 4);
  return least;
}

struct Room {
  std::vector<float> sizes, costs, sums;
  std::vector<int32_t> values;
  std::vector<uint32_t> counts;
  std::vector<int64_t> codes;
  std::vector<uint64_t> seen;
  std::vector<int32_t> rows, kept;
  std::vector<uint8_t> distances;
};

// Find the `depth` values with the lowest cost of each function, in the order of their axes.
WITHIN void rank_values(const Index& index, const float* projected, int64_t depth, Room& room) {
  room.values.resize(index.functions * depth);
  room.costs.resize(index.functions * depth);
  for (int64_t function = 0; function < index.functions; ++function) {
    const float* part = projected + function * index.width;
    room.sizes.resize(index.width);
    float most = 0.0f;
    for (int64_t axis = 0; axis < index.width; ++axis) {
      room.sizes[axis] = part[axis] < 0.0f ? -part[axis] : part[axis] + 0.0f;
      most = std::max(most, room.sizes[axis]);
    }
    const float threshold = least_of_largest(room.sizes.data(), index.width, static_cast<int32_t>(depth));
    int64_t equal = depth;
    for (const float size : room.sizes) equal -= size > threshold;
    int64_t found = function * depth;
    for (int64_t axis = 0; axis < index.width; ++axis) {
      const float size = room.sizes[axis];
      // Among equal sizes, lower axes win.
      if (size < threshold || (size == threshold && equal-- <= 0)) continue;
      const float less = most - size;
      room.costs[found] = less * less;
      room.values[found++] = static_cast<int32_t>(2 * axis + (part[axis] < 0.0f));
    }
  }
}

// Choose the addresses to look up: the pairs of values with the lowest cost over all tables.
WITHIN void choose_codes(const Index& index, int64_t depth, int64_t probes, Room& room) {
  const int64_t all = index.tables * depth * depth;
  room.sums.resize(all);
  for (int64_t table = 0; table < index.tables; ++table) {
    const float* first = &room.costs[index.pairs[2 * table] * depth];
    const float* second = &room.costs[index.pairs[2 * table + 1] * depth];
    float* sums = &room.sums[table * depth * depth];
    for (int64_t a = 0; a < depth; ++a)
      for (int64_t b = 0; b < depth; ++b) sums[a * depth + b] = first[a] + second[b];
  }
  const bool some = probes < all;
  const float bound = some ? ranked_at(room.sums, probes - 1, room.counts) : 0.0f;
  room.codes.clear();
  for (int64_t table = 0; table < index.tables; ++table) {
    const int32_t* first = &room.values[index.pairs[2 * table] * depth];
    const int32_t* second = &room.values[index.pairs[2 * table + 1] * depth];
    const float* sums = &room.sums[table * depth * depth];
    for (int64_t a = 0; a < depth; ++a)
      for (int64_t b = 0; b < depth; ++b)
        if (!some || sums[a * depth + b] <= bound)
          room.codes.push_back((table << 2 * index.bits) | (int64_t{first[a]} << index.bits) | second[b]);
  }
}

// Collect the rows of the chosen buckets, each once; `counts` excludes rows.
template <typename Offset>
WITHIN void read_buckets(const Index& index, const Buckets& buckets, const uint8_t* counts, Room& room) {
  const Offset* offsets = static_cast<const Offset*>(buckets.offsets);
  const int64_t shift = 2 * index.bits - buckets.address_bits;
  const int64_t number = static_cast<int64_t>(room.codes.size());
  constexpr int64_t kFar = 16, kNear = 8;
  for (int64_t at = 0; at < number + kFar; ++at) {
    if (at < number) __builtin_prefetch(offsets + (room.codes[at] >> shift));
    if (at >= kNear && at - kNear < number)
      __builtin_prefetch(buckets.postings + offsets[room.codes[at - kNear] >> shift]);
    if (at < kFar) continue;
    const int64_t address = room.codes[at - kFar] >> shift;
    const int64_t first = offsets[address];
    const int64_t last = std::min<int64_t>(offsets[address + 1], first + index.bucket_limit);
    for (int64_t place = first; place < last; ++place) {
      const int64_t row = buckets.start + buckets.postings[place];
      uint64_t& word = room.seen[row >> 6];
      const uint64_t bit = uint64_t{1} << (row & 63);
      if (word & bit || (counts && !counts[row])) continue;
      word |= bit;
      __builtin_prefetch(row_of<uint64_t>(index.sketches, row, 2));
      room.rows.push_back(static_cast<int32_t>(row));
    }
  }
}

// Choose about `most` rows, those with the most similar sketches, and sort them.
WITHIN void choose_rows(const Index& index, const float* projected, int64_t most, Room& room) {
  room.kept.clear();
  if (static_cast<int64_t>(room.rows.size()) <= most) {
    room.kept = room.rows;
    std::sort(room.kept.begin(), room.kept.end());
    return;
  }
  uint64_t query[2] = {0, 0};
  for (int64_t bit = 0; bit < kSketchBits; ++bit)
    query[bit / 64] |= static_cast<uint64_t>(projected[bit] > 0.0f) << (bit % 64);
  int64_t counted[kSketchBits + 1] = {};
  room.distances.resize(room.rows.size());
  for (size_t at = 0; at < room.rows.size(); ++at) {
    const uint64_t* sketch = row_of<uint64_t>(index.sketches, room.rows[at], 2);
    const int distance = __builtin_popcountll(sketch[0] ^ query[0]) + __builtin_popcountll(sketch[1] ^ query[1]);
    room.distances[at] = static_cast<uint8_t>(distance);
    ++counted[distance];
  }
  int64_t limit = 0, nearer = 0;
  while (nearer + counted[limit] < most) nearer += counted[limit++];
  const bool cut = nearer + counted[limit] > 2 * most;
  for (size_t at = 0; at < room.rows.size(); ++at)
    if (room.distances[at] < limit || (!cut && room.distances[at] == limit)) room.kept.push_back(room.rows[at]);
  if (cut) {
    // So many equal sketches are copies of one vector: keep the lowest rows.
    std::vector<int32_t>& equal = room.values;
    equal.clear();
    for (size_t at = 0; at < room.rows.size(); ++at)
      if (room.distances[at] == limit) equal.push_back(room.rows[at]);
    std::sort(equal.begin(), equal.end());
    room.kept.insert(room.kept.end(), equal.begin(), equal.begin() + (2 * most - nearer));
  }
  std::sort(room.kept.begin(), room.kept.end());
}

// The k rows with the highest scores; lower ids win ties.
class Best {
 public:
  explicit Best(int64_t k) : k_(static_cast<size_t>(k)) {}

  void add(float score, int64_t id) {
    const Scored one{score, id};
    if (found_.size() < k_) {
      found_.push_back(one);
      std::push_heap(found_.begin(), found_.end(), better);
    } else if (better(one, found_.front())) {
      std::pop_heap(found_.begin(), found_.end(), better);
      found_.back() = one;
      std::push_heap(found_.begin(), found_.end(), better);
    }
  }

  void give(float* scores, int64_t* ids) {
    std::sort_heap(found_.begin(), found_.end(), better);
    for (size_t at = 0; at < found_.size(); ++at) {
      scores[at] = found_[at].score;
      ids[at] = found_[at].id;
    }
  }

 private:
  struct Scored {
    float score;
    int64_t id;
  };

  static bool better(const Scored& one, const Scored& other) {
    return one.score > other.score || (one.score == other.score && one.id < other.id);
  }

  size_t k_;
  std::vector<Scored> found_;
};

// Score the rows of a list, or rows start to stop if `positions` is null; `counts` excludes rows.
template <typename Position>
WITHIN void compare(const Rows& vectors, const int64_t* ids, const float* query, int64_t dim,
                    const Position* positions, int64_t start, int64_t stop, const uint8_t* counts, Best& best) {
  constexpr int64_t kAhead = 4;
  const int64_t lines = (2 * dim + 63) / 64;
  for (int64_t at = start; at < stop; ++at) {
    if (positions && at + kAhead < stop) {
      const char* next = reinterpret_cast<const char*>(row_of<uint16_t>(vectors, positions[at + kAhead], dim));
      for (int64_t line = 0; line < lines; ++line) __builtin_prefetch(next + 64 * line);
    }
    const int64_t row = positions ? static_cast<int64_t>(positions[at]) : at;
    if (counts && !counts[row]) continue;
    best.add(product(row_of<uint16_t>(vectors, row, dim), query, dim), ids[row]);
  }
}

}  // namespace

// Write the k nearest rows of (count, dim) queries; entries beyond the number of rows keep their content.
//
// vectors: dim half-precision numbers each. ids: by row. stop: number of rows; all rows that are in no table are
// compared. counts: 0 for rows to exclude, or null. The caller has checked the arguments.
extern "C" WIDEST void lsh_search(const Index* given, const Rows* vectors, const int64_t* ids, const float* queries,
                                  int64_t count, int64_t k, int64_t depth, int64_t probes, int64_t rerank,
                                  int64_t stop, const uint8_t* counts, float* scores, int64_t* found) {
  const Index& index = *given;
  Room room;
  Rotated rotated;
  std::vector<float> projected(index.groups * kSets * index.size);
  room.seen.assign((index.rows + 63) / 64, 0);
  for (int64_t at = 0; at < count; ++at) {
    const float* own = projected.data();
    project(index, queries + at * index.dim, rotated, projected.data());
    rank_values(index, own, depth, room);
    choose_codes(index, depth, probes, room);
    room.rows.clear();
    for (int64_t part = 0; part < index.parts; ++part) {
      const Buckets& buckets = index.buckets[part];
      if (buckets.wide)
        read_buckets<int64_t>(index, buckets, counts, room);
      else
        read_buckets<int32_t>(index, buckets, counts, room);
    }
    for (const int32_t row : room.rows) room.seen[row >> 6] = 0;
    choose_rows(index, own, rerank, room);
    const float* query = queries + at * index.dim;
    Best best(k);
    const int64_t kept = static_cast<int64_t>(room.kept.size());
    compare(*vectors, ids, query, index.dim, room.kept.data(), 0, kept, nullptr, best);
    compare<int32_t>(*vectors, ids, query, index.dim, nullptr, index.rows, stop, counts, best);
    best.give(scores + at * k, found + at * k);
  }
}

// Do the same for one query, over rows start to stop, or over entries start to stop of `positions`.
extern "C" WIDEST void rows_search(const Rows* vectors, const int64_t* ids, const float* query, int64_t dim, int64_t k,
                                   const int64_t* positions, int64_t start, int64_t stop, const uint8_t* counts,
                                   float* scores, int64_t* found) {
  Best best(k);
  compare(*vectors, ids, query, dim, positions, start, stop, counts, best);
  best.give(scores, found);
}

// Write the (rows, functions) values and the (rows, 2) sketches of (rows, dim) vectors; only the numbers and signs of
// `given` are read.
extern "C" WIDEST void lsh_hash(const Index* given, const float* vectors, int64_t rows, uint16_t* codes,
                                uint64_t* sketches) {
  const Index& index = *given;
  Rotated rotated;
  std::vector<float> best(index.functions);
  for (int64_t row = 0; row < rows; ++row) {
    mix(index, vectors + row * index.dim, rotated);
    std::fill(best.begin(), best.end(), -1.0f);
    uint64_t* sketch = sketches + 2 * row;
    sketch[0] = sketch[1] = 0;
    for (int64_t group = 0; group < index.groups; ++group) {
      const float* numbers = rotate(index, group, rotated);
      find_codes(index, numbers, group, best.data(), codes + row * index.functions);
      for (int64_t bit = group * kSets * index.size; bit < std::min(kSketchBits, (group + 1) * kSets * index.size);
           ++bit) {
        const int64_t place = bit % index.size * kSets + bit / index.size % kSets;
        sketch[bit / 64] |= static_cast<uint64_t>(numbers[place] > 0.0f) << (bit % 64);
      }
    }
  }
}
