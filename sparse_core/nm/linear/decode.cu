// y = act(x W^T + bias) for few rows of x. It reads the packed 2:4 weight once, in the order of the sparse tensor
// core instruction, so that nothing is unpacked.
//
// A warp multiplies ROW_TILES x 16 rows of W by 8 x COLUMN_TILES rows of x over every WARPS-th block of 128
// columns of W; the warps of a block then add their sums in a fixed order.
//
// Lane (g = lane / 4, t = lane % 4) of mma.sp.m16n8k32 supplies kept values of row g, of groups t and t + 4. Of the
// dense operand it supplies halves of groups t / 2, t / 2 + 2, t / 2 + 4, t / 2 + 6. Groups may be renumbered if both
// operands agree. Here lane t reads 16 bytes: four neighbouring groups of a row. Groups 4 t + 2 s and 4 t + 2 s + 1
// act as groups t and t + 4 of instruction s. decode.py reorders the metadata to match.

typedef unsigned int u32;
typedef unsigned short u16;

#if ELEMENT == 0  // bfloat16
#define KIND "bf16"
__device__ __forceinline__ float widen(u16 v) { return __uint_as_float((u32)v << 16); }
__device__ __forceinline__ u16 narrow(float v) {
    u16 r;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(v));
    return r;
}
#else  // float16
#define KIND "f16"
__device__ __forceinline__ float widen(u16 v) {
    float r;
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(v));
    return r;
}
__device__ __forceinline__ u16 narrow(float v) {
    u16 r;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(v));
    return r;
}
#endif

#define MULTIPLY(selector, a0, a1, a2, a3, b)                                                                             \
    asm volatile("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32." KIND "." KIND ".f32 "    \
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, "      \
                 selector ";"                                                                           \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                       \
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(e))

__device__ __forceinline__ uint4 stream(const uint4* p) {  // read once: do not displace x from the cache
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

struct Chunk {  // 128 columns of the rows of a warp
    uint4 values[ROW_TILES][2][2];  // row tile, rows g and g + 8, half of the columns
    uint2 metadata[ROW_TILES];
};

__device__ __forceinline__ void fetch(Chunk& c, const u16* values, const u32* metadata, int columns, int chunk,
                                      int chunks, int lane) {
    const int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const u16* row = values + (long long)(16 * r + 8 * h + g) * (columns / 2) + chunk * 64 + 8 * t;
            c.values[r][h][0] = stream((const uint4*)row);
            c.values[r][h][1] = stream((const uint4*)(row + 32));
        }
        c.metadata[r] = __ldcs((const uint2*)metadata + ((long long)r * chunks + chunk) * 32 + lane);
    }
}

struct Input {  // 64 columns of x
    uint4 words[COLUMN_TILES][2];
};

__device__ __forceinline__ void fetch_input(Input& input, const u16* x, long long stride, int rows, int half, int g,
                                            int t) {
#pragma unroll
    for (int n = 0; n < COLUMN_TILES; ++n) {
        const int row = 8 * n + g;
        const uint4* p = (const uint4*)(x + row * stride + 64 * half + 32 * (t & 1) + 16 * (t >> 1));
        const uint4 zero = {0, 0, 0, 0};
        input.words[n][0] = row < rows ? __ldg(p) : zero;
        input.words[n][1] = row < rows ? __ldg(p + 1) : zero;
    }
}

__device__ __forceinline__ void halves(u32* b, uint4 own, int t) {
    // The two lanes of a pair read two groups each. Both need one half of all four groups, so they exchange halves.
    const bool odd = t & 1;
    const u32 first = __shfl_xor_sync(0xffffffffu, odd ? own.x : own.y, 1);
    const u32 second = __shfl_xor_sync(0xffffffffu, odd ? own.z : own.w, 1);
    b[0] = odd ? first : own.x;
    b[1] = odd ? own.y : first;
    b[2] = odd ? second : own.z;
    b[3] = odd ? own.w : second;
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, MIN_BLOCKS)
decode(const u16* __restrict__ x, const u16* __restrict__ values, const u32* __restrict__ metadata,
       const u16* __restrict__ bias, u16* __restrict__ y, int rows, int out, int columns, long long x_stride) {
    __shared__ float partial[WARPS][ROW_TILES * 16][8 * COLUMN_TILES + 1];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int g = lane >> 2, t = lane & 3;
    const int first = blockIdx.x * (ROW_TILES * 16);
    const int chunks = columns / 128;
    values += (long long)first * (columns / 2);
    metadata += (long long)(first / 16) * chunks * 64;

    float sums[ROW_TILES][COLUMN_TILES][4] = {};
    Chunk now, next;
    Input input;  // of the next half chunk
    if (warp < chunks) {
        fetch(now, values, metadata, columns, warp, chunks, lane);
        fetch_input(input, x, x_stride, rows, 2 * warp, g, t);
    }
    for (int chunk = warp; chunk < chunks; chunk += WARPS) {
        const bool more = chunk + WARPS < chunks;
        if (more) fetch(next, values, metadata, columns, chunk + WARPS, chunks, lane);
#pragma unroll
        for (int k = 0; k < 2; ++k) {
            const Input current = input;
            if (k == 0 || more) fetch_input(input, x, x_stride, rows, k == 0 ? 2 * chunk + 1 : 2 * (chunk + WARPS), g, t);
#pragma unroll
            for (int n = 0; n < COLUMN_TILES; ++n) {
                u32 b0[4], b1[4];
                halves(b0, current.words[n][0], t);
                halves(b1, current.words[n][1], t);
#pragma unroll
                for (int r = 0; r < ROW_TILES; ++r) {
                    const u32 e = k == 0 ? now.metadata[r].x : now.metadata[r].y;
                    const uint4 low = now.values[r][0][k], high = now.values[r][1][k];
                    float* d = sums[r][n];
                    MULTIPLY("0x0", low.x, high.x, low.y, high.y, b0);
                    MULTIPLY("0x1", low.z, high.z, low.w, high.w, b1);
                }
            }
        }
        now = next;
    }

#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
        for (int n = 0; n < COLUMN_TILES; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) partial[warp][16 * r + g + 8 * (i >> 1)][8 * n + 2 * t + (i & 1)] = sums[r][n][i];
    __syncthreads();
    for (int i = threadIdx.x; i < ROW_TILES * 16 * 8 * COLUMN_TILES; i += 32 * WARPS) {
        const int feature = i % (ROW_TILES * 16), row = i / (ROW_TILES * 16);
        if (row >= rows) break;
        float sum = 0;
#pragma unroll
        for (int w = 0; w < WARPS; ++w) sum += partial[w][feature][row];
        if (bias) sum += widen(bias[first + feature]);
        if (ACTIVATION == 1) sum = fmaxf(sum, 0.f);
        if (ACTIVATION == 2) sum = 0.5f * sum * (1.f + erff(sum * 0.70710678118654752f));
        y[(long long)row * out + first + feature] = narrow(sum);
    }
}
