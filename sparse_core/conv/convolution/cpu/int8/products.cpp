// Products of unsigned bytes and signed bytes for a CPU, see reference.py for the contract.
//
// Sums are exact 32-bit integers, and each result is rounded by the same few float operations in the same order. So
// every instruction set gives the same bits. Products and sums are not contracted.
//
// flags: -ffp-contract=off

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#if defined(__x86_64__) && defined(__GNUC__)
#define X86 1
#include <cpuid.h>
#include <immintrin.h>
#endif
#if defined(X86) && defined(__linux__) && !defined(EMULATE)
#include <sys/syscall.h>
#include <unistd.h>
#endif

extern "C" {

// A layer. Widths are multiples of 16.
struct Layer {
  const uint8_t* rows;          // (inputs, width); row `missing` is zero
  const int32_t* table;         // (outputs, taps) rows; null: output row m reads row m
  const int8_t* weight;         // (taps, width / 4, made / 16, 16, 4)
  const float* scale;           // (made,) of the sums
  const float* bias;            // (made,)
  const uint8_t* residual;      // (outputs, made), or null
  const float* residual_scale;  // (made,)
  void* out;                    // (outputs, made) uint8, or float32
  int64_t missing, width, taps, made;
  int64_t floats;               // 1 if the output is float32, not rounded, with negative numbers set to zero
  const int8_t* kept;           // 2:4 weights without their zeros, (taps, width / 8, made / 16, 16, 4); or null
  const uint8_t* places;        // channel of each kept weight among its eight
};

}  // extern "C"

namespace {

constexpr int64_t kLanes = 16;
constexpr int kMostTaps = 16;
constexpr int64_t kPortable = 0, kAvx2 = 1, kAvxVnni = 2, kAvx512Vnni = 3, kAmx = 4, kSkipping = 5;

inline int32_t four(const uint8_t* from) {
  int32_t word;
  std::memcpy(&word, from, 4);
  return word;
}

// Round numbers of 0 to 255 to the nearest integer, and ties to even: this sum has no bits for fractions.
inline uint8_t rounded(float number) {
  const float shifted = std::min(std::max(number, 0.0f), 255.0f) + 8388608.0f;
  uint32_t bits;
  std::memcpy(&bits, &shifted, 4);
  return static_cast<uint8_t>(bits);
}

// Write kLanes sums of an output row.
inline void write_lanes(const Layer& layer, const int32_t* sums, int64_t row, int64_t first) {
  const int64_t at = row * layer.made + first;
  float results[kLanes];
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    results[lane] = static_cast<float>(sums[lane]) * layer.scale[first + lane];
    results[lane] += layer.bias[first + lane];
  }
  if (layer.residual) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      results[lane] += static_cast<float>(layer.residual[at + lane]) * layer.residual_scale[first + lane];
    }
  }
  if (layer.floats) {
    float* out = static_cast<float*>(layer.out) + at;
    for (int64_t lane = 0; lane < kLanes; ++lane) out[lane] = results[lane] > 0.0f ? results[lane] : 0.0f;
    return;
  }
  uint8_t* out = static_cast<uint8_t*>(layer.out) + at;
  for (int64_t lane = 0; lane < kLanes; ++lane) out[lane] = rounded(results[lane]);
}

// Input rows of a group of ROWS output rows, by tap, without taps that none of them has.
template <int ROWS>
struct Group {
  const uint8_t* read[kMostTaps][ROWS];
  int64_t taps[kMostTaps];
  int64_t count = 0;

  Group(const Layer& layer, int64_t first, int64_t last) {
    const int64_t rows = std::min<int64_t>(ROWS, last - first);
    for (int64_t tap = 0; tap < layer.taps; ++tap) {
      bool any = false;
      for (int64_t row = 0; row < ROWS; ++row) {
        int64_t from = layer.missing;
        if (row < rows) from = layer.table ? layer.table[(first + row) * layer.taps + tap] : first + row;
        any = any || !layer.table || from != layer.missing;
        read[count][row] = layer.rows + from * layer.width;
      }
      if (any) taps[count++] = tap;
    }
  }
};

inline const int8_t* weight_of(const Layer& layer, int64_t tap, int64_t lanes) {
  return layer.weight + tap * layer.width * layer.made + lanes * kLanes * 4;
}

void portable(const Layer& layer, int64_t first, int64_t last) {
  for (int64_t row = first; row < last; ++row) {
    const Group<1> group(layer, row, last);
    for (int64_t lanes = 0; lanes < layer.made / kLanes; ++lanes) {
      int32_t sums[kLanes] = {};
      for (int64_t place = 0; place < group.count; ++place) {
        const uint8_t* read = group.read[place][0];
        const int8_t* weight = weight_of(layer, group.taps[place], lanes);
        for (int64_t channel = 0; channel < layer.width; channel += 4, weight += 4 * layer.made) {
          for (int64_t lane = 0; lane < kLanes; ++lane) {
            for (int64_t part = 0; part < 4; ++part) sums[lane] += read[channel + part] * weight[4 * lane + part];
          }
        }
      }
      write_lanes(layer, sums, row, lanes * kLanes);
    }
  }
}

#if defined(X86)

#define AVX2 __attribute__((target("avx2")))
#define ALWAYS_INLINE __attribute__((always_inline)) inline
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))
#if defined(EMULATE)
#define AVX_VNNI AVX2
#define AMX __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))
#else
#define AVX_VNNI __attribute__((target("avx2,avxvnni")))
#define AMX __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni,amx-tile,amx-int8")))
#endif

// Multiply 16-bit integers, because the product of bytes in AVX2 saturates.
AVX2 void avx2(const Layer& layer, int64_t first, int64_t last) {
  constexpr int kRows = 2;
  for (int64_t row = first; row < last; row += kRows) {
    const Group<kRows> group(layer, row, last);
    for (int64_t lanes = 0; lanes < layer.made / kLanes; ++lanes) {
      // Each register holds two sums for each of four outputs.
      __m256i sums[kRows][4];
      for (int r = 0; r < kRows; ++r)
        for (int part = 0; part < 4; ++part) sums[r][part] = _mm256_setzero_si256();
      for (int64_t place = 0; place < group.count; ++place) {
        const int8_t* weight = weight_of(layer, group.taps[place], lanes);
        for (int64_t channel = 0; channel < layer.width; channel += 4, weight += 4 * layer.made) {
          __m256i read[kRows];
          for (int r = 0; r < kRows; ++r)
            read[r] = _mm256_broadcastq_epi64(
                _mm_cvtepu8_epi16(_mm_cvtsi32_si128(four(group.read[place][r] + channel))));
          for (int part = 0; part < 4; ++part) {
            const __m256i wide =
                _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(weight + 16 * part)));
            for (int r = 0; r < kRows; ++r)
              sums[r][part] = _mm256_add_epi32(sums[r][part], _mm256_madd_epi16(read[r], wide));
          }
        }
      }
      for (int r = 0; r < kRows && row + r < last; ++r) {
        alignas(32) int32_t pairs[2 * kLanes], whole[kLanes];
        for (int part = 0; part < 4; ++part)
          _mm256_store_si256(reinterpret_cast<__m256i*>(pairs + 8 * part), sums[r][part]);
        for (int64_t lane = 0; lane < kLanes; ++lane) whole[lane] = pairs[2 * lane] + pairs[2 * lane + 1];
        write_lanes(layer, whole, row + r, lanes * kLanes);
      }
    }
  }
}

AVX_VNNI inline __m256i dot(__m256i sums, __m256i read, __m256i weight) {
#if defined(EMULATE)
  // The same integers without the instruction: even and odd bytes in 16 bits, then pairs of them.
  const __m256i low = _mm256_set1_epi16(0xff);
  const __m256i even = _mm256_madd_epi16(_mm256_and_si256(read, low),
                                         _mm256_srai_epi16(_mm256_slli_epi16(weight, 8), 8));
  const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(read, 8), _mm256_srai_epi16(weight, 8));
  return _mm256_add_epi32(sums, _mm256_add_epi32(even, odd));
#else
  return _mm256_dpbusd_avx_epi32(sums, read, weight);
#endif
}

AVX_VNNI void avx_vnni(const Layer& layer, int64_t first, int64_t last) {
  constexpr int kRows = 6;
  for (int64_t row = first; row < last; row += kRows) {
    const Group<kRows> group(layer, row, last);
    for (int64_t lanes = 0; lanes < layer.made / kLanes; ++lanes) {
      __m256i low[kRows], high[kRows];
      for (int r = 0; r < kRows; ++r) low[r] = high[r] = _mm256_setzero_si256();
      for (int64_t place = 0; place < group.count; ++place) {
        const uint8_t* const* read = group.read[place];
        const int8_t* weight = weight_of(layer, group.taps[place], lanes);
        for (int64_t channel = 0; channel < layer.width; channel += 4, weight += 4 * layer.made) {
          const __m256i left = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weight));
          const __m256i right = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weight + 32));
          for (int r = 0; r < kRows; ++r) {
            const __m256i same = _mm256_set1_epi32(four(read[r] + channel));
            low[r] = dot(low[r], same, left);
            high[r] = dot(high[r], same, right);
          }
        }
      }
      for (int r = 0; r < kRows && row + r < last; ++r) {
        alignas(32) int32_t whole[kLanes];
        _mm256_store_si256(reinterpret_cast<__m256i*>(whole), low[r]);
        _mm256_store_si256(reinterpret_cast<__m256i*>(whole + 8), high[r]);
        write_lanes(layer, whole, row + r, lanes * kLanes);
      }
    }
  }
}

// Write the sums of kLanes outputs of a row, as write_lanes does.
AVX512 inline void write_register(const Layer& layer, __m512i sums, int64_t row, int64_t first) {
  const int64_t at = row * layer.made + first;
  __m512 result = _mm512_mul_ps(_mm512_cvtepi32_ps(sums), _mm512_loadu_ps(layer.scale + first));
  result = _mm512_add_ps(result, _mm512_loadu_ps(layer.bias + first));
  if (layer.residual) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(layer.residual + at));
    const __m512 residual = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
    result = _mm512_add_ps(result, _mm512_mul_ps(residual, _mm512_loadu_ps(layer.residual_scale + first)));
  }
  if (layer.floats) {
    _mm512_storeu_ps(static_cast<float*>(layer.out) + at, _mm512_max_ps(result, _mm512_setzero_ps()));
    return;
  }
  result = _mm512_min_ps(_mm512_max_ps(result, _mm512_setzero_ps()), _mm512_set1_ps(255.0f));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(static_cast<uint8_t*>(layer.out) + at),
                   _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(result)));
}

// Add the products of one tap to the sums of ROWS output rows and 16 * REGISTERS outputs of each.
template <int ROWS, int REGISTERS>
AVX512 ALWAYS_INLINE void add_products(const Layer& layer, const uint8_t* const* read, int64_t tap, int64_t lanes,
                                       __m512i (&sums)[ROWS][REGISTERS]) {
  const int8_t* weight = weight_of(layer, tap, lanes);
  for (int64_t channel = 0; channel < layer.width; channel += 4, weight += 4 * layer.made) {
    __m512i four_by_lane[REGISTERS];
#pragma GCC unroll 4
    for (int part = 0; part < REGISTERS; ++part) four_by_lane[part] = _mm512_loadu_si512(weight + 64 * part);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
      const __m512i same = _mm512_set1_epi32(four(read[r] + channel));
#pragma GCC unroll 4
      for (int part = 0; part < REGISTERS; ++part)
        sums[r][part] = _mm512_dpbusd_epi32(sums[r][part], same, four_by_lane[part]);
    }
  }
}

// The same for 2:4 weights: select four of eight inputs for each output, then multiply once instead of twice.
template <int ROWS, int REGISTERS>
AVX512 ALWAYS_INLINE void add_kept_products(const Layer& layer, const uint8_t* const* read, int64_t tap,
                                            int64_t lanes, __m512i (&sums)[ROWS][REGISTERS]) {
  int64_t at = tap * layer.width / 2 * layer.made + lanes * kLanes * 4;
  for (int64_t channel = 0; channel < layer.width; channel += 8, at += 4 * layer.made) {
    __m512i kept[REGISTERS], places[REGISTERS];
#pragma GCC unroll 4
    for (int part = 0; part < REGISTERS; ++part) {
      kept[part] = _mm512_loadu_si512(layer.kept + at + 64 * part);
      places[part] = _mm512_loadu_si512(layer.places + at + 64 * part);
    }
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
      int64_t eight;
      std::memcpy(&eight, read[r] + channel, 8);
      const __m512i same = _mm512_set1_epi64(eight);
#pragma GCC unroll 4
      for (int part = 0; part < REGISTERS; ++part)
        sums[r][part] = _mm512_dpbusd_epi32(sums[r][part], _mm512_shuffle_epi8(same, places[part]), kept[part]);
    }
  }
}

// Compute ROWS output rows and 16 * REGISTERS outputs of each.
template <int ROWS, int REGISTERS, bool SKIPPING>
AVX512 inline void avx512_block(const Layer& layer, const Group<ROWS>& group, int64_t lanes, int64_t row,
                                int64_t last) {
  __m512i sums[ROWS][REGISTERS];
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 4
    for (int part = 0; part < REGISTERS; ++part) sums[r][part] = _mm512_setzero_si512();
  for (int64_t place = 0; place < group.count; ++place) {
    if (SKIPPING)
      add_kept_products(layer, group.read[place], group.taps[place], lanes, sums);
    else
      add_products(layer, group.read[place], group.taps[place], lanes, sums);
  }
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) {
    if (row + r >= last) break;
#pragma GCC unroll 4
    for (int part = 0; part < REGISTERS; ++part)
      write_register(layer, sums[r][part], row + r, (lanes + part) * kLanes);
  }
}

template <int ROWS, int REGISTERS, bool SKIPPING>
AVX512 void avx512_rows(const Layer& layer, int64_t first, int64_t last) {
  const int64_t all = layer.made / kLanes;
  for (int64_t row = first; row < last; row += ROWS) {
    const Group<ROWS> group(layer, row, last);
    int64_t lanes = 0;
    for (; lanes + REGISTERS <= all; lanes += REGISTERS)
      avx512_block<ROWS, REGISTERS, SKIPPING>(layer, group, lanes, row, last);
    for (; lanes < all; ++lanes) avx512_block<ROWS, 1, SKIPPING>(layer, group, lanes, row, last);
  }
}

// Use as many registers for sums as the 32 allow.
AVX512 void avx512(const Layer& layer, int64_t first, int64_t last, bool skipping) {
  const int64_t all = layer.made / kLanes;
  if (skipping) {
    if (all % 2 == 0 && all % 3) return avx512_rows<8, 2, true>(layer, first, last);
    return avx512_rows<7, 3, true>(layer, first, last);
  }
  if (all % 4 == 0 || all > 6) return avx512_rows<6, 4, false>(layer, first, last);
  return avx512_rows<8, 3, false>(layer, first, last);
}

// Tiles of 16 rows: 0 to 3 hold sums, 4 and 5 rows of the input, 6 and 7 weights.
#if defined(EMULATE)
// What the instructions do, in plain C++, for processors without them.
struct Tile {
  uint8_t bytes[16][64];
};
inline Tile& tile(int number) {
  static thread_local Tile tiles[8];
  return tiles[number];
}
struct alignas(64) TileShapes;
inline const TileShapes*& shapes() {
  static thread_local const TileShapes* given = nullptr;
  return given;
}
#endif

struct alignas(64) TileShapes {
  uint8_t palette = 1, start = 0, unused[14] = {};
  uint16_t bytes[16] = {};  // of a row
  uint8_t rows[16] = {};
};

#if defined(EMULATE)
inline void tile_move(int number, uint8_t* memory, int64_t stride, bool load) {
  for (int row = 0; row < shapes()->rows[number]; ++row) {
    uint8_t *inside = tile(number).bytes[row], *outside = memory + row * stride;
    std::memcpy(load ? inside : outside, load ? outside : inside, shapes()->bytes[number]);
  }
}
inline void tile_dot(int sums, int left, int right) {
  for (int row = 0; row < shapes()->rows[sums]; ++row)
    for (int column = 0; column < shapes()->bytes[sums] / 4; ++column) {
      int32_t sum;
      std::memcpy(&sum, tile(sums).bytes[row] + 4 * column, 4);
      for (int byte = 0; byte < shapes()->bytes[left]; ++byte)
        sum += tile(left).bytes[row][byte] *
               static_cast<int8_t>(tile(right).bytes[byte / 4][4 * column + byte % 4]);
      std::memcpy(tile(sums).bytes[row] + 4 * column, &sum, 4);
    }
}
#define TILE_SHAPES(given) shapes() = given
#define TILE_RELEASE() shapes() = nullptr
#define TILE_ZERO(number) std::memset(&tile(number), 0, sizeof(Tile))
#define TILE_LOAD(number, from, stride) tile_move(number, reinterpret_cast<uint8_t*>(from), stride, true)
#define TILE_STORE(number, to, stride) tile_move(number, reinterpret_cast<uint8_t*>(to), stride, false)
#define TILE_DOT(sums, left, right) tile_dot(sums, left, right)
#else
#define TILE_SHAPES(given) _tile_loadconfig(given)
#define TILE_RELEASE() _tile_release()
#define TILE_ZERO(number) _tile_zero(number)
#define TILE_LOAD(number, from, stride) _tile_loadd(number, from, stride)
#define TILE_STORE(number, to, stride) _tile_stored(number, to, stride)
#define TILE_DOT(sums, left, right) _tile_dpbusd(sums, left, right)
#endif

AMX void amx(const Layer& layer, int64_t first, int64_t last) {
  constexpr int kRows = 32;
  const int64_t bytes = layer.width % 64 == 0 ? 64 : layer.width % 32 == 0 ? 32 : 16;
  TileShapes tiles;
  for (int number = 0; number < 8; ++number) {
    tiles.rows[number] = static_cast<uint8_t>(number < 6 ? 16 : bytes / 4);
    tiles.bytes[number] = static_cast<uint16_t>(number == 4 || number == 5 ? bytes : 64);
  }
  TILE_SHAPES(&tiles);
  std::vector<uint8_t> gathered(layer.taps * kRows * layer.width);
  alignas(64) int32_t sums[2][kRows][kLanes];
  const int64_t all = layer.made / kLanes, half = 16 * layer.width, next = 4 * layer.made;
  for (int64_t row = first; row < last; row += kRows) {
    const Group<kRows> group(layer, row, last);
    uint8_t* into = gathered.data();
    for (int64_t place = 0; place < group.count; ++place) {
      for (int r = 0; r < kRows; ++r, into += layer.width) std::memcpy(into, group.read[place][r], layer.width);
    }
    for (int64_t lanes = 0; lanes < all; lanes += 2) {
      const bool two = lanes + 1 < all;
      TILE_ZERO(0);
      TILE_ZERO(1);
      TILE_ZERO(2);
      TILE_ZERO(3);
      for (int64_t place = 0; place < group.count; ++place) {
        uint8_t* read = gathered.data() + place * kRows * layer.width;
        int8_t* weight = const_cast<int8_t*>(weight_of(layer, group.taps[place], lanes));
        for (int64_t channel = 0; channel < layer.width; channel += bytes) {
          TILE_LOAD(4, read + channel, layer.width);
          TILE_LOAD(5, read + channel + half, layer.width);
          TILE_LOAD(6, weight + channel / 4 * next, next);
          TILE_DOT(0, 4, 6);
          TILE_DOT(1, 5, 6);
          if (!two) continue;
          TILE_LOAD(7, weight + channel / 4 * next + 64, next);
          TILE_DOT(2, 4, 7);
          TILE_DOT(3, 5, 7);
        }
      }
      TILE_STORE(0, sums[0][0], 64);
      TILE_STORE(1, sums[0][16], 64);
      TILE_STORE(2, sums[1][0], 64);
      TILE_STORE(3, sums[1][16], 64);
      for (int r = 0; r < kRows && row + r < last; ++r)
        for (int part = 0; part < (two ? 2 : 1); ++part)
          write_register(layer, _mm512_load_si512(sums[part][r]), row + r, (lanes + part) * kLanes);
    }
  }
  TILE_RELEASE();
}

// Return the instruction sets of this processor as bits.
int64_t supported() {
  uint32_t a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1)) return 1;
  uint32_t low, high;
  // The registers that the operating system saves.
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  uint32_t wide_a, wide_b, wide_c, wide_d, more = 0;
  if (!__get_cpuid_count(7, 0, &wide_a, &wide_b, &wide_c, &wide_d)) return 1;
  if (wide_a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) more = a;
  int64_t found = 1;
  const bool ymm = (low & 6) == 6, zmm = (low & 0xe6) == 0xe6;
  if (ymm && (wide_b >> 5 & 1)) found |= 1 << kAvx2;
  if ((found >> kAvx2 & 1) && (more >> 4 & 1)) found |= 1 << kAvxVnni;
  const bool foundation = (wide_b >> 16 & 1) && (wide_b >> 30 & 1) && (wide_b >> 31 & 1);
  if (zmm && foundation && (wide_c >> 11 & 1)) found |= 1 << kAvx512Vnni | 1 << kSkipping;
#if defined(EMULATE)
  if (found >> kAvx2 & 1) found |= 1 << kAvxVnni;
  if (found >> kAvx512Vnni & 1) found |= 1 << kAmx;
#elif defined(__linux__)
  const bool tiles = (low >> 17 & 3) == 3;
  // Linux gives a process the tiles when it asks for them (ARCH_REQ_XCOMP_PERM of XFEATURE_XTILEDATA).
  if ((found >> kAvx512Vnni & 1) && tiles && (wide_d >> 24 & 3) == 3 && syscall(SYS_arch_prctl, 0x1023, 18) == 0)
    found |= 1 << kAmx;
#endif
  return found;
}

#endif

}  // namespace

extern "C" {

// Return the paths that this processor has as bits: portable, AVX2, AVX-VNNI, AVX-512 VNNI, AMX, and AVX-512 VNNI
// without the zeros of 2:4 weights.
int64_t int8_paths() {
#if defined(X86)
  return supported();
#else
  return 1;
#endif
}

// Compute the output rows from `first` to before `last` of a layer.
void int8_layer(const Layer* layer, int64_t first, int64_t last, int64_t path) {
#if defined(X86)
  if (path == kAvx2) return avx2(*layer, first, last);
  if (path == kAvxVnni) return avx_vnni(*layer, first, last);
  if (path == kAvx512Vnni || path == kSkipping) return avx512(*layer, first, last, path == kSkipping);
  if (path == kAmx) return amx(*layer, first, last);
#endif
  portable(*layer, first, last);
}

// Round rows of floats: out[m] = values[order[m]] * inverse. order: null for all rows in their order. The rows of the
// output have `width` bytes, those beyond `channels` are zero.
void int8_rounded(const float* values, const int64_t* order, int64_t count, int64_t channels, int64_t width,
                  float inverse, uint8_t* out) {
  for (int64_t row = 0; row < count; ++row, out += width) {
    const float* from = values + (order ? order[row] : row) * channels;
    for (int64_t channel = 0; channel < channels; ++channel) out[channel] = rounded(from[channel] * inverse);
    std::memset(out + channels, 0, width - channels);
  }
}

// Find the largest values of runs of rows: out (runs, width) from rows (sum of counts, width); zero for an empty run.
void int8_largest(const uint8_t* rows, const int64_t* counts, int64_t runs, int64_t width, uint8_t* out) {
  std::memset(out, 0, runs * width);
  for (int64_t run = 0; run < runs; ++run, out += width) {
    for (int64_t row = 0; row < counts[run]; ++row, rows += width) {
      for (int64_t column = 0; column < width; ++column) out[column] = std::max(out[column], rows[column]);
    }
  }
}

}  // extern "C"
