// Products of a CSR matrix with dense rows on a CPU. The loops request rows ahead of their use, because the rows of a
// large operand are not in the cache and their order is known only to this code.
//
// One thread sums a row, in the stored order and without contraction, so that neither the number of threads nor the
// processor changes a bit.
//
// flags: -ffp-contract=off

#include <cstdint>
#include <thread>
#include <vector>

#define WITHIN static inline __attribute__((always_inline))

namespace {

constexpr int64_t kLine = 64, kAhead = 8;

template <typename T, typename I>
struct Job {
  const I* row_ptr;
  const I* col;
  const T* left;   // spmm: values (nnz,); sddmm: a (rows, width)
  const T* right;  // (columns, width)
  T* result;       // spmm: (rows, width); sddmm: (nnz,)
  int64_t width, rows;
};

template <typename T, typename I>
WITHIN const T* request(const Job<T, I>& job, int64_t entry, int64_t last, int64_t first, int64_t count) {
  if (entry + kAhead < last) {
    const T* next = job.right + static_cast<int64_t>(job.col[entry + kAhead]) * job.width + first;
    for (int64_t at = 0; at < count; at += kLine / static_cast<int64_t>(sizeof(T))) __builtin_prefetch(next + at);
  }
  return job.right + static_cast<int64_t>(job.col[entry]) * job.width + first;
}

// Sum COUNT columns of one row.
template <int COUNT, typename T, typename I>
WITHIN void sum_columns(const Job<T, I>& job, int64_t row, int64_t last, int64_t first) {
  T sums[COUNT] = {};
  for (int64_t entry = job.row_ptr[row]; entry < job.row_ptr[row + 1]; ++entry) {
    const T* read = request(job, entry, last, first, COUNT);
    for (int at = 0; at < COUNT; ++at) sums[at] += job.left[entry] * read[at];
  }
  for (int at = 0; at < COUNT; ++at) job.result[row * job.width + first + at] = sums[at];
}

template <typename T, typename I>
WITHIN void multiply(const Job<T, I>& job, int64_t begin, int64_t end) {
  constexpr int kWide = 256 / sizeof(T), kNarrow = 32 / sizeof(T);
  const int64_t last = job.row_ptr[end];
  for (int64_t row = begin; row < end; ++row) {
    int64_t first = 0;
    for (; first + kWide <= job.width; first += kWide) sum_columns<kWide>(job, row, last, first);
    for (; first + kNarrow <= job.width; first += kNarrow) sum_columns<kNarrow>(job, row, last, first);
    for (; first < job.width; ++first) sum_columns<1>(job, row, last, first);
  }
}

template <typename T, typename I>
WITHIN void sample(const Job<T, I>& job, int64_t begin, int64_t end) {
  constexpr int kLanes = 128 / sizeof(T);
  const int64_t last = job.row_ptr[end];
  for (int64_t row = begin; row < end; ++row) {
    const T* a = job.left + row * job.width;
    for (int64_t entry = job.row_ptr[row]; entry < job.row_ptr[row + 1]; ++entry) {
      const T* b = request(job, entry, last, 0, job.width);
      T lanes[kLanes] = {};
      int64_t at = 0;
      for (; at + kLanes <= job.width; at += kLanes)
        for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += a[at + lane] * b[at + lane];
      for (int half = kLanes / 2; half > 0; half /= 2)
        for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
      for (; at < job.width; ++at) lanes[0] += a[at] * b[at];
      job.result[entry] = lanes[0];
    }
  }
}

template <typename T, typename I>
using Range = void (*)(const Job<T, I>&, int64_t, int64_t);

template <bool SAMPLE, typename T, typename I>
void plain(const Job<T, I>& job, int64_t begin, int64_t end) {
  SAMPLE ? sample(job, begin, end) : multiply(job, begin, end);
}

#if defined(__x86_64__)
template <bool SAMPLE, typename T, typename I>
__attribute__((target("avx2"))) void avx2(const Job<T, I>& job, int64_t begin, int64_t end) {
  SAMPLE ? sample(job, begin, end) : multiply(job, begin, end);
}
#endif

template <bool SAMPLE, typename T, typename I>
Range<T, I> range_for_processor() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2")) return avx2<SAMPLE, T, I>;
#endif
  return plain<SAMPLE, T, I>;
}

// Divide the rows so that each thread has equally many rows and entries in sum.
template <bool SAMPLE, typename T, typename I>
void run(const Job<T, I>& job, int64_t threads) {
  const Range<T, I> range = range_for_processor<SAMPLE, T, I>();
  std::vector<std::thread> others;
  const int64_t work = job.rows + static_cast<int64_t>(job.row_ptr[job.rows]);
  int64_t begin = 0;
  for (int64_t thread = 1; thread < threads; ++thread) {
    int64_t end = begin, above = job.rows;
    while (end < above) {
      const int64_t middle = (end + above) / 2;
      if (middle + static_cast<int64_t>(job.row_ptr[middle]) < work * thread / threads) end = middle + 1;
      else above = middle;
    }
    others.emplace_back(range, job, begin, end);
    begin = end;
  }
  range(job, begin, job.rows);
  for (auto& other : others) other.join();
}

template <typename T, typename I>
void call(bool sampled, const void* row_ptr, const void* col, const void* left, const void* right, void* result,
          int64_t width, int64_t rows, int64_t threads) {
  const Job<T, I> job{static_cast<const I*>(row_ptr), static_cast<const I*>(col),     static_cast<const T*>(left),
                      static_cast<const T*>(right),   static_cast<T*>(result), width, rows};
  sampled ? run<true>(job, threads) : run<false>(job, threads);
}

}  // namespace

extern "C" void sparse_product(int64_t sampled, int64_t wide_values, int64_t wide_indices, const void* row_ptr,
                               const void* col, const void* left, const void* right, void* result, int64_t width,
                               int64_t rows, int64_t threads) {
  const auto chosen = wide_values ? (wide_indices ? call<double, int64_t> : call<double, int32_t>)
                                  : (wide_indices ? call<float, int64_t> : call<float, int32_t>);
  chosen(sampled != 0, row_ptr, col, left, right, result, width, rows, threads);
}
