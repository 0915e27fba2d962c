// Products with 2:4 weights on processors with AVX-512, without unpacking the weights.
//
// Sixteen kept values belong to eight groups: 32 columns of the input, in two registers. Four bytes hold sixteen
// positions of two bits. One permutation with these positions selects sixteen inputs, then one multiply-add follows.
// The weight has 4.25 bytes for every 8 of a dense one, and half the multiply-adds.
//
// flags: -mavx512f -mavx512bw -mavx512vl -mfma
// machine: x86_64

#include <immintrin.h>

#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

namespace {

constexpr int64_t kStep = 32;

inline __m512i places(uint32_t word) {
  const __m512i shifts = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i groups = _mm512_setr_epi32(0, 0, 4, 4, 8, 8, 12, 12, 16, 16, 20, 20, 24, 24, 28, 28);
  const __m512i bits = _mm512_and_si512(_mm512_srlv_epi32(_mm512_set1_epi32(static_cast<int>(word)), shifts),
                                        _mm512_set1_epi32(3));
  return _mm512_or_si512(bits, groups);
}

// Multiply ROWS rows of the input by OUTS rows of the weight. The order of a row's sum is the same for all block sizes.
template <int ROWS, int OUTS>
void block(const float* x, const float* values, const uint8_t* metadata, const float* bias, float* y,
           int64_t columns, int64_t out, int64_t first) {
  const int64_t kept = columns / 2, bytes = (columns + 7) / 8;
  __m512 sums[ROWS][OUTS];
  for (int r = 0; r < ROWS; ++r)
    for (int o = 0; o < OUTS; ++o) sums[r][o] = _mm512_setzero_ps();
  int64_t column = 0;
  for (; column + kStep <= columns; column += kStep) {
    __m512i index[OUTS];
    __m512 weight[OUTS];
    for (int o = 0; o < OUTS; ++o) {
      uint32_t word;
      std::memcpy(&word, metadata + (first + o) * bytes + column / 8, 4);
      index[o] = places(word);
      weight[o] = _mm512_loadu_ps(values + (first + o) * kept + column / 2);
    }
    for (int r = 0; r < ROWS; ++r) {
      const __m512 low = _mm512_loadu_ps(x + r * columns + column);
      const __m512 high = _mm512_loadu_ps(x + r * columns + column + 16);
      for (int o = 0; o < OUTS; ++o)
        sums[r][o] = _mm512_fmadd_ps(weight[o], _mm512_permutex2var_ps(low, index[o], high), sums[r][o]);
    }
  }
  if (const int64_t left = columns - column; left > 0) {
    const __mmask16 some = static_cast<__mmask16>((1u << (left / 2)) - 1);
    const __mmask16 lower = static_cast<__mmask16>(left >= 16 ? 0xffff : (1u << left) - 1);
    const __mmask16 upper = static_cast<__mmask16>(left > 16 ? (1u << (left - 16)) - 1 : 0);
    for (int o = 0; o < OUTS; ++o) {
      uint32_t word = 0;
      std::memcpy(&word, metadata + (first + o) * bytes + column / 8, static_cast<size_t>((left + 7) / 8));
      const __m512i index = places(word);
      const __m512 weight = _mm512_maskz_loadu_ps(some, values + (first + o) * kept + column / 2);
      for (int r = 0; r < ROWS; ++r) {
        const __m512 low = _mm512_maskz_loadu_ps(lower, x + r * columns + column);
        const __m512 high = _mm512_maskz_loadu_ps(upper, x + r * columns + column + 16);
        // Positions beyond the last group select any input. Mask it: its weight is 0, but it may be infinite.
        const __m512 taken = _mm512_maskz_permutex2var_ps(some, low, index, high);
        sums[r][o] = _mm512_fmadd_ps(weight, taken, sums[r][o]);
      }
    }
  }
  for (int r = 0; r < ROWS; ++r)
    for (int o = 0; o < OUTS; ++o)
      y[r * out + first + o] = _mm512_reduce_add_ps(sums[r][o]) + (bias == nullptr ? 0.0f : bias[first + o]);
}

template <int ROWS>
void strip(const float* x, const float* values, const uint8_t* metadata, const float* bias, float* y,
           int64_t columns, int64_t out, int64_t begin, int64_t end) {
  constexpr int kOuts = 4;
  int64_t first = begin;
  for (; first + kOuts <= end; first += kOuts)
    block<ROWS, kOuts>(x, values, metadata, bias, y, columns, out, first);
  for (; first < end; ++first) block<ROWS, 1>(x, values, metadata, bias, y, columns, out, first);
}

void range(const float* x, const float* values, const uint8_t* metadata, const float* bias, float* y,
           int64_t rows, int64_t columns, int64_t out, int64_t begin, int64_t end) {
  // Keep a few rows of the weight in the first-level cache while the loop reads all of the input.
  const int64_t together = 16;
  for (int64_t at = begin; at < end; at += together) {
    const int64_t stop = at + together < end ? at + together : end;
    int64_t row = 0;
    for (; row + 4 <= rows; row += 4)
      strip<4>(x + row * columns, values, metadata, bias, y + row * out, columns, out, at, stop);
    for (; row + 2 <= rows; row += 2)
      strip<2>(x + row * columns, values, metadata, bias, y + row * out, columns, out, at, stop);
    for (; row < rows; ++row)
      strip<1>(x + row * columns, values, metadata, bias, y + row * out, columns, out, at, stop);
  }
}

}  // namespace

extern "C" void two_four_linear(const float* x, const float* values, const uint8_t* metadata,
                                const float* bias, float* y, int64_t rows, int64_t columns, int64_t out,
                                int64_t threads) {
  std::vector<std::thread> others;
  const int64_t share = (out + threads - 1) / threads;
  for (int64_t begin = share; begin < out; begin += share)
    others.emplace_back(range, x, values, metadata, bias, y, rows, columns, out, begin,
                        begin + share < out ? begin + share : out);
  range(x, values, metadata, bias, y, rows, columns, out, 0, share < out ? share : out);
  for (auto& other : others) other.join();
}
