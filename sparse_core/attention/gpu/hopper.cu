// Forward block-sparse attention on Hopper's tensor cores.
//
// A block of threads stays on its multiprocessor and processes pieces of block rows, one after another. Warp group 0
// only copies: one thread per stream enqueues bulk tensor copies of queries, keys and values into rings in shared
// memory. The other two warp groups compute 64 queries each. They share a stream with blocks of 128 tokens; with
// blocks of 64 each has its own. During a group's softmax, the tensor cores compute the other group's products and
// the group's next scores (Shah et al., "FlashAttention-3", 2024). Scores and sums are float32. The weights are
// rounded to the type of the values, as usual in 16-bit attention.
//
// Constants: BLOCK (64 or 128), DIM (64 or 128), STAGES, BF16 (0 or 1).

typedef unsigned int u32;
typedef unsigned long long u64;

#define STREAMS (128 / BLOCK)
#define GROUPS (BLOCK / 64)
#define CHUNKS (DIM / 64)
#define TILE_BYTES (BLOCK * DIM * 2)
#define CHUNK_BYTES (BLOCK * 128)
#define WORDS (BLOCK / 32)
#define STREAM_BYTES (TILE_BYTES * (1 + 2 * STAGES))
#define BARRIERS (2 + 4 * STAGES)

#define INFINITY __int_as_float(0x7f800000)

#if BF16
#define TYPE "bf16"
#else
#define TYPE "f16"
#endif

#define REGISTERS_4(x, i) "+f"(x[i]), "+f"(x[i + 1]), "+f"(x[i + 2]), "+f"(x[i + 3])
#define REGISTERS_16(x, i) REGISTERS_4(x, i), REGISTERS_4(x, i + 4), REGISTERS_4(x, i + 8), REGISTERS_4(x, i + 12)
#define REGISTERS_32(x) REGISTERS_16(x, 0), REGISTERS_16(x, 16)
#define REGISTERS_64(x) REGISTERS_16(x, 0), REGISTERS_16(x, 16), REGISTERS_16(x, 32), REGISTERS_16(x, 48)

struct alignas(64) TensorMap {
    char bytes[128];
};

struct Problem {
    void *out;
    float *lse;
    const int *row_ptr;
    const int *full_end;
    const int *columns;
    const int *mask_index;
    const u32 *bits;
    const int *parts;  // null: units in their order
    float *part_out;
    float *part_lse;
    const unsigned short *q, *k, *v;  // read again if masked values are not finite
    long long out_batch, out_head, out_row;
    long long q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row;
    float scale;  // scale of the scores times log2(e)
    int items, query_length, key_length, heads, group, pattern_heads, block_rows;
};

#define NUMBERS_32                                                                      \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "            \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NUMBERS_64 NUMBERS_32 ", "                                                      \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "  \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

// Products m64nNk16 of the tensor cores, added to COUNT numbers per thread. A to F are the operand numbers after them.
// product: both operands from shared memory, rows of the second along the contracted dimension.
// weighted: the first operand from registers, the second contiguous along its columns.
#define PRODUCTS(N, COUNT, A, B, C, D, E, F)                                                                          \
    __device__ __forceinline__ void product(float (&d)[COUNT], u64 a, u64 b, int add) {                               \
        asm volatile(                                                                                                 \
            "{ .reg .pred p; setp.ne.b32 p, %" #C ", 0;"                                                              \
            " wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" NUMBERS_##COUNT "}, %" #A ", %" #B  \
            ", p, 1, 1, 0, 0; }"                                                                                      \
            : REGISTERS_##COUNT(d)                                                                                    \
            : "l"(a), "l"(b), "r"(add));                                                                              \
    }                                                                                                                 \
    __device__ __forceinline__ void weighted(float (&d)[COUNT], const u32 *a, u64 b, int add) {                       \
        asm volatile(                                                                                                 \
            "{ .reg .pred p; setp.ne.b32 p, %" #F ", 0;"                                                              \
            " wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" NUMBERS_##COUNT                     \
            "}, {%" #A ", %" #B ", %" #C ", %" #D "}, %" #E ", p, 1, 1, 1; }"                                         \
            : REGISTERS_##COUNT(d)                                                                                    \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));                                          \
    }
PRODUCTS(64, 32, 32, 33, 34, 35, 36, 37)
PRODUCTS(128, 64, 64, 65, 66, 67, 68, 69)

__device__ __forceinline__ u32 shared_address(const void *pointer) {
    return (u32)__cvta_generic_to_shared(pointer);
}

__device__ __forceinline__ void barrier_init(u32 barrier, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

__device__ __forceinline__ void barrier_expect(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void barrier_arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void barrier_wait(u32 barrier, u32 parity) {
    asm volatile(
        "{ .reg .pred done; again:"
        " mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;"
        " @!done bra again; }" ::"r"(barrier), "r"(parity) : "memory");
}

// Copy the rows of a tile, 64 columns per copy, in the 128-byte swizzle; zeros fill places outside.
__device__ __forceinline__ void copy_tile(
    u32 target, const TensorMap *map, u32 barrier, int row, int head, int batch) {
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk)
        asm volatile(
            "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
            " [%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(target + chunk * CHUNK_BYTES), "l"(map),
            "r"(chunk * 64), "r"(row), "r"(head), "r"(batch), "r"(barrier) : "memory");
}

// Describe a tile in the 128-byte swizzle: groups of 8 rows are 1,024 bytes apart, chunks of columns CHUNK_BYTES.
// The latter matters only for operands that are contiguous along their columns.
__device__ __forceinline__ u64 descriptor(u32 address) {
    return (u64)((address & 0x3FFFF) >> 4) | ((u64)(CHUNK_BYTES >> 4) << 16) | ((u64)(1024 >> 4) << 32) | (1ull << 62);
}

__device__ __forceinline__ void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING> __device__ __forceinline__ void products_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// Stop the compiler from moving accesses to a product's registers before the wait.
template <int N> __device__ __forceinline__ void hold(float (&x)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) asm volatile("" : "+f"(x[i])::"memory");
}

__device__ __forceinline__ void group_sync(int id) { asm volatile("bar.sync %0, 256;" ::"r"(id) : "memory"); }
__device__ __forceinline__ void group_arrive(int id) { asm volatile("bar.arrive %0, 256;" ::"r"(id) : "memory"); }

__device__ __forceinline__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float log2_fast(float x) {
    float y;
    asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float single(unsigned short bits) {
    float y;
#if BF16
    y = __uint_as_float((u32)bits << 16);
#else
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(bits));
#endif
    return y;
}

__device__ __forceinline__ u32 pair(float low, float high) {
    u32 y;
    asm("cvt.rn." TYPE "x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}

__device__ __forceinline__ void scores_of(float (&s)[BLOCK / 2], u32 queries, u32 keys) {
    products_begin();
#pragma unroll
    for (int step = 0; step < DIM / 16; ++step) {
        u32 offset = (step / 4) * CHUNK_BYTES + (step % 4) * 32;
        product(s, descriptor(queries + offset), descriptor(keys + offset), step);
    }
    products_commit();
}

__device__ __forceinline__ void add_values(float (&o)[DIM / 2], const u32 (&p)[BLOCK / 4], u32 values) {
    products_begin();
#pragma unroll
    for (int step = 0; step < BLOCK / 16; ++step)
        weighted(o, p + 4 * step, descriptor(values + step * 2048), 1);
    products_commit();
}

struct Item {
    int batch, head, head_index, block_row, begin, middle, end, slot;
};

__device__ __forceinline__ Item item_of(const Problem &problem, int index) {
    Item item;
    int unit = index, first = 0, last = 0;
    item.slot = -1;
    if (problem.parts) {
        const int *part = problem.parts + 4 * index;
        unit = part[0], first = part[1], last = part[2], item.slot = part[3];
    }
    item.head_index = unit / problem.block_rows;
    item.block_row = unit % problem.block_rows;
    item.batch = item.head_index / problem.heads;
    item.head = item.head_index % problem.heads;
    int row = (item.head % problem.pattern_heads) * problem.block_rows + item.block_row;
    item.begin = problem.row_ptr[row];
    item.end = problem.row_ptr[row + 1];
    if (problem.parts) item.end = item.begin + last, item.begin += first;
    item.middle = min(max(problem.full_end[row], item.begin), item.end);
    return item;
}

__device__ void produce(
    const Problem &problem, const TensorMap *q, const TensorMap *k, const TensorMap *v, u32 memory, u32 barriers,
    int stream) {
    u32 q_full = barriers, q_empty = barriers + 8, full_k = barriers + 16, empty_k = full_k + 8 * STAGES;
    u32 full_v = empty_k + 8 * STAGES, empty_v = full_v + 8 * STAGES;
    u32 ring = memory + TILE_BYTES;
    u32 stage = 0, phase = 1, q_phase = 1;
    for (int index = stream; index < problem.items; index += gridDim.x * STREAMS) {
        Item item = item_of(problem, index);
        if (item.begin >= item.end) continue;
        int key_head = item.head / problem.group;
        int column = problem.columns[item.begin];
        barrier_wait(q_empty, q_phase);
        q_phase ^= 1;
        barrier_expect(q_full, TILE_BYTES);
        copy_tile(memory, q, q_full, item.block_row * BLOCK, item.head, item.batch);
        for (int entry = item.begin; entry < item.end; ++entry) {
            int following = entry + 1 < item.end ? problem.columns[entry + 1] : 0;
            u32 target = ring + stage * 2 * TILE_BYTES;
            barrier_wait(empty_k + 8 * stage, phase);
            barrier_expect(full_k + 8 * stage, TILE_BYTES);
            copy_tile(target, k, full_k + 8 * stage, column * BLOCK, key_head, item.batch);
            barrier_wait(empty_v + 8 * stage, phase);
            barrier_expect(full_v + 8 * stage, TILE_BYTES);
            copy_tile(target + TILE_BYTES, v, full_v + 8 * stage, column * BLOCK, key_head, item.batch);
            column = following;
            if (++stage == STAGES) stage = 0, phase ^= 1;
        }
    }
}

// Mask the scores of an entry that has a token mask or extends beyond the keys.
__device__ __forceinline__ void mask_scores(
    float (&s)[BLOCK / 2], const Problem &problem, int entry, int row, int lane) {
    const u32 *bits = problem.bits + ((long long)problem.mask_index[entry] * BLOCK + row) * WORDS;
    int left = problem.key_length - problem.columns[entry] * BLOCK - (lane % 4) * 2;
#pragma unroll
    for (int word = 0; word < WORDS; ++word) {
        u32 upper = bits[word] >> ((lane % 4) * 2), lower = bits[8 * WORDS + word] >> ((lane % 4) * 2);
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                int at = 4 * (4 * word + j) + e;
                bool outside = 32 * word + 8 * j + e >= left;
                if (outside || !(upper >> (8 * j + e) & 1)) s[at] = -INFINITY;
                if (outside || !(lower >> (8 * j + e) & 1)) s[at + 2] = -INFINITY;
            }
    }
}

// Do a step of the online softmax on the thread's two rows; it turns scores into weights.
__device__ __forceinline__ void soften(
    float (&s)[BLOCK / 2], float (&largest)[2], float (&total)[2], float (&shrink)[2], float scale) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        float top = s[2 * r];
#pragma unroll
        for (int j = 0; j < BLOCK / 8; ++j) top = fmaxf(top, fmaxf(s[4 * j + 2 * r], s[4 * j + 2 * r + 1]));
        top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFF, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFF, top, 2));
        top = fmaxf(top, largest[r]);
        float shift = top == -INFINITY ? 0.0f : top * scale;
        shrink[r] = exp2_fast(largest[r] * scale - shift);
        largest[r] = top;
        float sum = 0.0f;
#pragma unroll
        for (int j = 0; j < BLOCK / 8; ++j)
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                float weight = exp2_fast(fmaf(s[4 * j + 2 * r + e], scale, -shift));
                s[4 * j + 2 * r + e] = weight;
                sum += weight;
            }
        total[r] = total[r] * shrink[r] + sum;
    }
}

__device__ __forceinline__ void round_weights(u32 (&p)[BLOCK / 4], const float (&s)[BLOCK / 2]) {
#pragma unroll
    for (int i = 0; i < BLOCK / 4; ++i) p[i] = pair(s[2 * i], s[2 * i + 1]);
}

__device__ __forceinline__ void store_rows(
    const Problem &problem, const Item &item, const float (&o)[DIM / 2], const float (&largest)[2],
    const float (&total)[2], int row, int lane) {
    float factor[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        float sum = total[r];
        sum += __shfl_xor_sync(0xFFFFFFFF, sum, 1);
        sum += __shfl_xor_sync(0xFFFFFFFF, sum, 2);
        bool empty = sum == 0.0f;
        factor[r] = empty ? 0.0f : 1.0f / sum;
        float lse = empty ? -INFINITY : (largest[r] * problem.scale + log2_fast(sum)) * 0.6931471805599453f;
        int query = item.block_row * BLOCK + row + 8 * r;
        if (lane % 4 == 0) {
            if (item.slot >= 0) problem.part_lse[(long long)item.slot * BLOCK + row + 8 * r] = lse;
            else if (problem.lse != nullptr && query < problem.query_length)
                problem.lse[(long long)item.head_index * problem.query_length + query] = lse;
        }
    }
    if (item.slot >= 0) {
        float *rows = problem.part_out + ((long long)item.slot * BLOCK + row) * DIM + (lane % 4) * 2;
#pragma unroll
        for (int j = 0; j < DIM / 8; ++j)
#pragma unroll
            for (int r = 0; r < 2; ++r)
                *(float2 *)(rows + 8 * r * DIM + 8 * j) =
                    make_float2(o[4 * j + 2 * r] * factor[r], o[4 * j + 2 * r + 1] * factor[r]);
        return;
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        int query = item.block_row * BLOCK + row + 8 * r;
        char *target = (char *)problem.out + 2 * (item.batch * problem.out_batch + item.head * problem.out_head +
                                                  (long long)query * problem.out_row);
#pragma unroll
        for (int j = 0; j < DIM / 8; j += 2) {
            // Neighbouring lanes exchange halves, so that a row is written in whole sectors.
            u32 first = pair(o[4 * j + 2 * r] * factor[r], o[4 * j + 2 * r + 1] * factor[r]);
            u32 second = pair(o[4 * j + 4 + 2 * r] * factor[r], o[4 * j + 5 + 2 * r] * factor[r]);
            bool odd = lane & 1;
            u32 other = __shfl_xor_sync(0xFFFFFFFF, odd ? first : second, 1);
            uint2 both = odd ? make_uint2(other, second) : make_uint2(first, other);
            int column = odd ? 8 * (j + 1) + (lane % 4 - 1) * 2 : 8 * j + (lane % 4) * 2;
            if (query < problem.query_length) *(uint2 *)(target + 2 * column) = both;
        }
    }
}

// Compute the rows of a warp again from allowed pairs only, number by number. A masked pair has weight 0, but 0 times
// NaN or infinity is NaN. Only warps with NaN in their result call this.
__device__ __forceinline__ void mend_rows(
    const Problem &problem, const Item &item, float (&o)[DIM / 2], const float (&largest)[2], int row, int lane) {
    int key_head = item.head / problem.group;
    const unsigned short *q = problem.q + item.batch * problem.q_batch + item.head * problem.q_head;
    const unsigned short *k = problem.k + item.batch * problem.k_batch + key_head * problem.k_head;
    const unsigned short *v = problem.v + item.batch * problem.v_batch + key_head * problem.v_head;
#pragma unroll
    for (int i = 0; i < DIM / 2; ++i) o[i] = 0.0f;
#pragma unroll 1
    for (int entry = item.begin; entry < item.end; ++entry) {
        int first = problem.columns[entry] * BLOCK, mask = problem.mask_index[entry];
        int keys = min(BLOCK, problem.key_length - first);
#pragma unroll 1
        for (int place = 0; place < keys; ++place) {
            float weight[2];
            bool allowed[2];
#pragma unroll 1
            for (int r = 0; r < 2; ++r) {
                int inner = row + 8 * r, query = item.block_row * BLOCK + inner;
                const u32 *bits = problem.bits + ((long long)max(mask, 0) * BLOCK + inner) * WORDS;
                bool counts = query < problem.query_length;
                counts = counts && (entry < item.middle || (bits[place / 32] >> (place % 32) & 1));
                float score = 0.0f;
                // Four lanes share a row.
#pragma unroll 1
                for (int d = lane % 4; d < DIM && counts; d += 4)
                    score += single(q[query * problem.q_row + d]) * single(k[(first + place) * problem.k_row + d]);
                score += __shfl_xor_sync(0xFFFFFFFF, score, 1);
                score += __shfl_xor_sync(0xFFFFFFFF, score, 2);
                float top = r ? largest[1] : largest[0];
                float shift = top == -INFINITY ? 0.0f : top * problem.scale;
                float value = exp2_fast(fmaf(score, problem.scale, -shift));
                value = single((unsigned short)(pair(value, 0.0f) & 0xFFFF));
                if (r) weight[1] = value, allowed[1] = counts;
                else weight[0] = value, allowed[0] = counts;
            }
            const unsigned short *values = v + (first + place) * problem.v_row + (lane % 4) * 2;
#pragma unroll
            for (int j = 0; j < DIM / 8; ++j)
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    float value = single(values[8 * j + e]);
                    if (allowed[0]) o[4 * j + e] = fmaf(weight[0], value, o[4 * j + e]);
                    if (allowed[1]) o[4 * j + 2 + e] = fmaf(weight[1], value, o[4 * j + 2 + e]);
                }
        }
    }
}

__device__ void consume(const Problem &problem, u32 memory, u32 barriers, int stream, int group) {
    u32 q_full = barriers, q_empty = barriers + 8, full_k = barriers + 16, empty_k = full_k + 8 * STAGES;
    u32 full_v = empty_k + 8 * STAGES, empty_v = full_v + 8 * STAGES;
    int lane = threadIdx.x % 32, warp = (threadIdx.x / 32) % 4;
    int row = group * 64 + warp * 16 + lane / 4;
    u32 queries = memory + group * 8192, ring = memory + TILE_BYTES;
    u32 stage = 0, phase = 0, q_phase = 0;
    float scale = problem.scale;
    for (int index = stream; index < problem.items; index += gridDim.x * STREAMS) {
        Item item = item_of(problem, index);
        float o[DIM / 2], largest[2] = {-INFINITY, -INFINITY}, total[2] = {0.0f, 0.0f}, shrink[2];
#pragma unroll
        for (int i = 0; i < DIM / 2; ++i) o[i] = 0.0f;
        if (item.begin < item.end) {
            float s[BLOCK / 2];
            u32 p[BLOCK / 4];
            barrier_wait(q_full, q_phase);
            q_phase ^= 1;
            barrier_wait(full_k + 8 * stage, phase);
            scores_of(s, queries, ring + stage * 2 * TILE_BYTES);
            products_wait<0>();
            hold(s);
            if (lane == 0) barrier_arrive(empty_k + 8 * stage);
            if (item.begin >= item.middle) mask_scores(s, problem, item.begin, row, lane);
            soften(s, largest, total, shrink, scale);
            round_weights(p, s);
            for (int entry = item.begin + 1; entry < item.end; ++entry) {
                u32 next = stage + 1, next_phase = phase;
                if (next == STAGES) next = 0, next_phase ^= 1;
                barrier_wait(full_k + 8 * next, next_phase);
                if (GROUPS == 2) group_sync(1 + group);
                scores_of(s, queries, ring + next * 2 * TILE_BYTES);
                barrier_wait(full_v + 8 * stage, phase);
                add_values(o, p, ring + stage * 2 * TILE_BYTES + TILE_BYTES);
                if (GROUPS == 2) group_arrive(2 - group);
                products_wait<1>();
                hold(s);
                if (lane == 0) barrier_arrive(empty_k + 8 * next);
                if (entry >= item.middle) mask_scores(s, problem, entry, row, lane);
                soften(s, largest, total, shrink, scale);
                products_wait<0>();
                hold(o);
                if (lane == 0) barrier_arrive(empty_v + 8 * stage);
#pragma unroll
                for (int i = 0; i < DIM / 2; ++i) o[i] *= shrink[(i / 2) % 2];
                round_weights(p, s);
                stage = next, phase = next_phase;
            }
            if (lane == 0) barrier_arrive(q_empty);
            barrier_wait(full_v + 8 * stage, phase);
            add_values(o, p, ring + stage * 2 * TILE_BYTES + TILE_BYTES);
            products_wait<0>();
            hold(o);
            if (lane == 0) barrier_arrive(empty_v + 8 * stage);
            if (++stage == STAGES) stage = 0, phase ^= 1;
            if (item.middle < item.end) {
                bool spoiled = false;
#pragma unroll
                for (int i = 0; i < DIM / 2; ++i) spoiled |= o[i] != o[i];
                if (__any_sync(0xFFFFFFFF, spoiled)) mend_rows(problem, item, o, largest, row, lane);
            }
        }
        store_rows(problem, item, o, largest, total, row, lane);
    }
}

extern "C" __global__ void __launch_bounds__(384, 1) forward(
    const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k, const __grid_constant__ TensorMap v,
    const __grid_constant__ Problem problem) {
    extern __shared__ char raw[];
    __shared__ alignas(8) u64 barrier_memory[STREAMS * BARRIERS];
    u32 memory = (shared_address(raw) + 1023) & ~1023u;
    u32 barriers = shared_address(barrier_memory);
    if (threadIdx.x == 0) {
        for (int stream = 0; stream < STREAMS; ++stream) {
            u32 base = barriers + 8 * BARRIERS * stream;
            barrier_init(base, 1);
            barrier_init(base + 8, 4 * GROUPS);
            for (int stage = 0; stage < STAGES; ++stage) {
                barrier_init(base + 16 + 8 * stage, 1);
                barrier_init(base + 16 + 8 * (STAGES + stage), 4 * GROUPS);
                barrier_init(base + 16 + 8 * (2 * STAGES + stage), 1);
                barrier_init(base + 16 + 8 * (3 * STAGES + stage), 4 * GROUPS);
            }
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    int group = threadIdx.x / 128;
    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        int stream = threadIdx.x / 32;
        if (stream < STREAMS && threadIdx.x % 32 == 0)
            produce(problem, &q, &k, &v, memory + stream * STREAM_BYTES, barriers + 8 * BARRIERS * stream,
                    blockIdx.x * STREAMS + stream);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        int stream = STREAMS == 2 ? group - 1 : 0;
        int member = STREAMS == 2 ? 0 : group - 1;
        if (GROUPS == 2 && member == 1) group_arrive(1);  // the first group goes first
        consume(problem, memory + stream * STREAM_BYTES, barriers + 8 * BARRIERS * stream,
                blockIdx.x * STREAMS + stream, member);
    }
}
