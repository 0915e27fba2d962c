// A 3x3 convolution over whole maps, channels last, on Hopper's tensor cores, with bias, residual and ReLU. For the
// last map, the same launch computes the two layers of the heat map.
//
// A block of threads computes 8 x (8 GROUPS) cells and N output channels. Shared memory holds each input cell once, in
// one plane per 8 channels. The next tap is then the same memory 16 bytes later, or one line later. The weights of all
// taps are fetched at once; the kernel waits for each tap just before it uses it.
//
// Constants: C (input channels, a multiple of 16), N (64 or 96), GROUPS (1 or 2), BF16 (0 or 1), CLASSES (of the heat
// map; 0: none), HIDDEN (channels between the heat map's layers, 64 or 96).

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short u16;

#define THREADS (128 * GROUPS)
#define LINE (8 * GROUPS + 2)
#define HALO (10 * LINE)
#define PLANE (HALO | 1)  // odd, so that planes use different banks
#define PARTS (C / 8)
#define TAP_BYTES (C * N * 2)
#define HIDDEN_BYTES (N * HIDDEN * 2)
#define CELLS_BYTES (PARTS * PLANE * 16)

#if BF16
#define TYPE "bf16"
#else
#define TYPE "f16"
#endif

#define NAMES_32                                                         \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_48 NAMES_32 \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define REGISTERS_4(x, i) "+f"(x[i]), "+f"(x[i + 1]), "+f"(x[i + 2]), "+f"(x[i + 3])
#define REGISTERS_16(x, i) REGISTERS_4(x, i), REGISTERS_4(x, i + 4), REGISTERS_4(x, i + 8), REGISTERS_4(x, i + 12)

struct Problem {
    const u16 *features;    // (frames, height, width, C)
    const u16 *weight;      // (blocks of N, 9, C / 8, N, 8)
    const float *bias;      // (channels,)
    const u16 *residual;    // (frames, height, width, channels); null: none
    u16 *out;               // (frames, height, width, channels)
    const u16 *hidden;      // (N / 8, HIDDEN, 8)
    const float *hidden_bias;
    const float *heat;      // (HIDDEN, CLASSES)
    const float *heat_bias;
    float *scores;          // (frames, CLASSES, height, width)
    int height, width, lines, columns, channels;  // lines and columns of tiles in a frame
    int relu;
};

// 64 or 96 columns, both operands from shared memory
__device__ __forceinline__ void product(float (&d)[32], u64 a, u64 b, int add) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %34, 0;"
        " wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE " {" NAMES_32
        "}, %32, %33, p, 1, 1, 0, 0; }"
        : REGISTERS_16(d, 0), REGISTERS_16(d, 16)
        : "l"(a), "l"(b), "r"(add));
}

__device__ __forceinline__ void product(float (&d)[48], u64 a, u64 b, int add) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %50, 0;"
        " wgmma.mma_async.sync.aligned.m64n96k16.f32." TYPE "." TYPE " {" NAMES_48
        "}, %48, %49, p, 1, 1, 0, 0; }"
        : REGISTERS_16(d, 0), REGISTERS_16(d, 16), REGISTERS_16(d, 32)
        : "l"(a), "l"(b), "r"(add));
}

// the first operand from registers
__device__ __forceinline__ void product(float (&d)[32], const u32 (&a)[4], u64 b, int add) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %37, 0;"
        " wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE " {" NAMES_32
        "}, {%32, %33, %34, %35}, %36, p, 1, 1, 0; }"
        : REGISTERS_16(d, 0), REGISTERS_16(d, 16)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

__device__ __forceinline__ void product(float (&d)[48], const u32 (&a)[4], u64 b, int add) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %53, 0;"
        " wgmma.mma_async.sync.aligned.m64n96k16.f32." TYPE "." TYPE " {" NAMES_48
        "}, {%48, %49, %50, %51}, %52, p, 1, 1, 0; }"
        : REGISTERS_16(d, 0), REGISTERS_16(d, 16), REGISTERS_16(d, 32)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

// Describe an operand of 8 x 8 pieces of 128 bytes. The next 8 numbers of the contracted dimension are `deep` bytes
// away, the next 8 rows `wide` bytes.
__device__ __forceinline__ u64 descriptor(u32 address, u32 deep, u32 wide) {
    return (u64)((address & 0x3FFFF) >> 4) | ((u64)(deep >> 4) << 16) | ((u64)(wide >> 4) << 32);
}

__device__ __forceinline__ void barrier_wait(u32 barrier) {
    asm volatile(
        "{ .reg .pred done; again:"
        " mbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;"
        " @!done bra again; }" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void copy(u32 target, const void *source, u32 bytes, u32 barrier) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(target),
        "l"(source), "r"(bytes), "r"(barrier) : "memory");
}

__device__ __forceinline__ void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void products_wait() { asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); }

// Stop the compiler from moving accesses to a product's registers before the wait.
template <int M> __device__ __forceinline__ void hold(float (&x)[M]) {
#pragma unroll
    for (int i = 0; i < M; ++i) asm volatile("" : "+f"(x[i])::"memory");
}

__device__ __forceinline__ u32 pair(float low, float high) {
    u32 y;
    asm("cvt.rn." TYPE "x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}

__device__ __forceinline__ float2 unpaired(u32 both) {
    float2 y;
#if BF16
    y.x = __uint_as_float(both << 16), y.y = __uint_as_float(both & 0xFFFF0000);
#else
    asm("{ .reg .b16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high; }"
        : "=f"(y.x), "=f"(y.y) : "r"(both));
#endif
    return y;
}

__device__ __forceinline__ float2 pair_at(const float *pointer) { return *reinterpret_cast<const float2 *>(pointer); }

#if CLASSES
// Compute heat map scores of the thread's two cells from the stored (rounded) features.
__device__ __forceinline__ void add_heat(
    const Problem &problem, const u32 (&stored)[2][N / 8], u32 hidden, const float *numbers, int frame,
    const int (&cell)[2], const bool (&inside)[2], int lane) {
    float d[HIDDEN / 2];
    products_begin();
#pragma unroll
    for (int step = 0; step < N / 16; ++step) {
        u32 a[4] = {stored[0][2 * step], stored[1][2 * step], stored[0][2 * step + 1], stored[1][2 * step + 1]};
        product(d, a, descriptor(hidden + step * 2 * HIDDEN * 16, HIDDEN * 16, 128), step);
    }
    products_commit();
    products_wait();
    hold(d);
    float sums[2][CLASSES];
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int k = 0; k < CLASSES; ++k) sums[i][k] = 0.0f;
#pragma unroll
    for (int j = 0; j < HIDDEN / 8; ++j) {
        int column = 8 * j + lane % 4 * 2;
        float2 shift = pair_at(numbers + column);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            // Round like the stored map.
            u32 both = pair(fmaxf(d[4 * j + 2 * i] + shift.x, 0.0f), fmaxf(d[4 * j + 2 * i + 1] + shift.y, 0.0f));
            float2 value = unpaired(both);
#pragma unroll
            for (int k = 0; k < CLASSES; ++k) {
                sums[i][k] = fmaf(value.x, numbers[HIDDEN + column * CLASSES + k], sums[i][k]);
                sums[i][k] = fmaf(value.y, numbers[HIDDEN + (column + 1) * CLASSES + k], sums[i][k]);
            }
        }
    }
    long long area = (long long)problem.height * problem.width;
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int k = 0; k < CLASSES; ++k) {
            float sum = sums[i][k];
            sum += __shfl_xor_sync(0xFFFFFFFF, sum, 1);
            sum += __shfl_xor_sync(0xFFFFFFFF, sum, 2);
            float score = 1.0f / (1.0f + expf(-(sum + problem.heat_bias[k])));
            if (lane % 4 == 0 && inside[i]) problem.scores[((long long)frame * CLASSES + k) * area + cell[i]] = score;
        }
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS, 1) convolve(const __grid_constant__ Problem problem) {
    extern __shared__ __align__(1024) char memory[];
    u32 weights = (u32)__cvta_generic_to_shared(memory);
    u32 cells = weights + 9 * TAP_BYTES, hidden = cells + CELLS_BYTES;
    u32 barriers = hidden + (CLASSES ? HIDDEN_BYTES : 0);
    int thread = threadIdx.x, lane = thread % 32, group = thread / 128;
    int frame = blockIdx.x / (problem.lines * problem.columns);
    int tile = blockIdx.x % (problem.lines * problem.columns);
    int top = tile / problem.columns * 8, left = tile % problem.columns * (8 * GROUPS);
    int first = blockIdx.y * N;
    if (thread == 0) {
        for (int tap = 0; tap <= 9; ++tap)
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barriers + 8 * tap) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async;" ::: "memory");
        const u16 *weight = problem.weight + (long long)blockIdx.y * (9 * C * N);
        for (int tap = 0; tap < 9; ++tap)
            copy(weights + tap * TAP_BYTES, weight + tap * (C * N), TAP_BYTES, barriers + 8 * tap);
#if CLASSES
        copy(hidden, problem.hidden, HIDDEN_BYTES, barriers + 72);
#endif
    }
    float *numbers = reinterpret_cast<float *>(memory + (barriers - weights) + 80);
    for (int item = thread; item < N; item += THREADS) numbers[item] = problem.bias[first + item];
#if CLASSES
    for (int item = thread; item < HIDDEN; item += THREADS) numbers[N + item] = problem.hidden_bias[item];
    for (int item = thread; item < HIDDEN * CLASSES; item += THREADS) numbers[N + HIDDEN + item] = problem.heat[item];
#endif
    // Everything above reads constants. Wait here: the previous launch may still be writing what follows.
    asm volatile("griddepcontrol.wait;" ::: "memory");
    const u16 *source = problem.features + (long long)frame * problem.height * problem.width * C;
    for (int item = thread; item < HALO * PARTS; item += THREADS) {
        int place = item / PARTS, part = item % PARTS;
        int y = top - 1 + place / LINE, x = left - 1 + place % LINE;
        bool inside = y >= 0 && y < problem.height && x >= 0 && x < problem.width;
        // Zeros around the map.
        const u16 *from = inside ? source + ((long long)y * problem.width + x) * C + part * 8 : source;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(cells + (part * PLANE + place) * 16), "l"(from),
                     "r"(inside ? 16 : 0) : "memory");
    }
    // The thread's two cells. Eight rows of the product are a line of eight cells.
    int row = thread % 128 / 32 * 16 + lane / 4;
    int cell[2];
    bool inside[2];
    long long start[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        int y = top + (row + 8 * i) / 8, x = left + 8 * group + (row + 8 * i) % 8;
        inside[i] = y < problem.height && x < problem.width;
        cell[i] = y * problem.width + x;
        start[i] = ((long long)frame * problem.height * problem.width + cell[i]) * problem.channels + first + lane % 4 * 2;
    }
    u32 added[2][N / 8];
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < N / 8; ++j) {
            added[i][j] = 0;
            if (problem.residual && inside[i])
                added[i][j] = *reinterpret_cast<const u32 *>(problem.residual + start[i] + 8 * j);
        }
    asm volatile("cp.async.wait_all;" ::: "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    float d[N / 2];
    // Not unrolled: the kernel runs once per frame, so its instructions are never cached, and short code is faster.
#pragma unroll 1
    for (int tap = 0; tap < 9; ++tap) {
        barrier_wait(barriers + 8 * tap);
        products_begin();
        u32 shifted = cells + (tap / 3 * LINE + tap % 3 + 8 * group) * 16;
#pragma unroll
        for (int step = 0; step < C / 16; ++step)
            product(d, descriptor(shifted + step * 2 * PLANE * 16, PLANE * 16, LINE * 16),
                    descriptor(weights + tap * TAP_BYTES + step * 2 * N * 16, N * 16, 128), tap + step);
        products_commit();
    }
    products_wait();
    hold(d);
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    float floor = problem.relu ? 0.0f : -__int_as_float(0x7f800000);
    u32 stored[2][N / 8];
#pragma unroll
    for (int j = 0; j < N / 8; ++j) {
        float2 shift = pair_at(numbers + 8 * j + lane % 4 * 2);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            float low = d[4 * j + 2 * i] + shift.x, high = d[4 * j + 2 * i + 1] + shift.y;
            float2 addend = unpaired(added[i][j]);
            low += addend.x, high += addend.y;
            stored[i][j] = pair(fmaxf(low, floor), fmaxf(high, floor));
            if (inside[i]) *reinterpret_cast<u32 *>(problem.out + start[i] + 8 * j) = stored[i][j];
        }
    }
#if CLASSES
    barrier_wait(barriers + 72);
    add_heat(problem, stored, hidden, numbers + N, frame, cell, inside, lane);
#endif
}
