// What all kernels share: types, loads and stores of every storage type, sums over a block.
//
// No header of CUDA is needed, so that NVRTC alone compiles the kernels on any machine. Every kernel
// takes one struct by value, declared in Rust (see kernels.rs), which makes these declarations.
// Blocks are one-dimensional, of whole warps. Sums are always added in the same order: the same
// launch gives the same bits.

#ifdef EMULATOR
#define DEVICE static inline
#define SHARED(T, name) T *name = (T *)emulator::shared.data()
#define KERNEL_OF(THREADS, name, Args)                                                             \
    static void name##_body(const Args &a);                                                        \
    extern "C" const unsigned name##_size = sizeof(Args);                                          \
    extern "C" const char *name(uint3 grid, uint3 block, unsigned shared, const void *args) {      \
        if (block.x * block.y * block.z > THREADS) return "the block has too many threads";         \
        return emulator::run(grid, block, shared, [=] { name##_body(*(const Args *)args); });      \
    }                                                                                              \
    static void name##_body(const Args &a)
#define LARGE_KERNEL(name, Args) KERNEL_OF(1024, name, Args)
#else
#define DEVICE static __device__ __forceinline__
#define SHARED(T, name)                                                                            \
    extern __shared__ float4 dynamic_shared[];                                                     \
    T *name = (T *)dynamic_shared
#define KERNEL_OF(THREADS, name, Args)                                                             \
    extern "C" __global__ void __launch_bounds__(THREADS) name(const __grid_constant__ Args a)
// Two of its blocks fill a multiprocessor.
#define LARGE_KERNEL(name, Args)                                                                   \
    extern "C" __global__ void __launch_bounds__(1024, 2) name(const __grid_constant__ Args a)
#endif

#define KERNEL(name, Args) KERNEL_OF(256, name, Args)

// An entry point for every type that tensors are stored as.
#define FOR_EACH_TYPE(entry)                                                                       \
    entry(f32, float) entry(bf16, Bf16) entry(f16, F16)

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;
typedef float f32;
typedef double f64;

struct Bf16 {
    u16 bits;
};
struct F16 {
    u16 bits;
};

DEVICE u32 bits(float x) { return __float_as_uint(x); }
DEVICE float from_bits(u32 x) { return __uint_as_float(x); }
DEVICE bool is_nan(float x) { return (bits(x) & 0x7fffffff) > 0x7f800000; }
DEVICE bool is_finite(float x) { return (bits(x) & 0x7fffffff) < 0x7f800000; }

// The half nearest to a number, ties to even: an addition rounds to the half's last place.
DEVICE u32 half_bits(float value) {
#ifdef EMULATOR
    float magnitude = fabsf(value), limit = 65536.0f;
    float limited = magnitude < limit ? magnitude : limit;
    u32 power = max(bits(limited) & 0x7f800000, 113u << 23);
    u32 magic = power + (13u << 23);
    u32 code = bits(limited + from_bits(magic)) - magic + ((power - (113u << 23)) >> 13);
    return code | (is_nan(value) ? 0x7e00 : 0) | bits(value) >> 31 << 15;
#else
    u16 half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return is_nan(value) ? 0x7e00 | bits(value) >> 31 << 15 : half;
#endif
}

DEVICE float half_value(u32 code) {
#ifdef EMULATOR
    u32 magnitude = (code & 0x7fff) << 13;
    float number = from_bits(magnitude + (113u << 23)) - from_bits(113u << 23);
    if (magnitude >> 23 != 0) number = from_bits(magnitude + (112u << 23));
    if (magnitude >> 23 == 31) number = from_bits(magnitude | 0x7f800000);
    return from_bits(bits(number) | (code & 0x8000) << 16);
#else
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"((u16)code));
    return value;
#endif
}

DEVICE float load(float x) { return x; }
DEVICE float load(Bf16 x) { return from_bits((u32)x.bits << 16); }
DEVICE float load(F16 x) { return half_value(x.bits); }

template <class T> struct As;
template <> struct As<float> {
    static __device__ float of(float x) { return x; }
};
template <> struct As<Bf16> {
    static __device__ Bf16 of(float x) {
        u32 word = bits(x);
        u32 rounded = word + 0x7fff + (word >> 16 & 1);
        return {(u16)((is_nan(x) ? word | 0x400000 : rounded) >> 16)};
    }
};
template <> struct As<F16> {
    static __device__ F16 of(float x) { return {(u16)half_bits(x)}; }
};
template <class T> DEVICE T store(float x) { return As<T>::of(x); }

// Sixteen bytes: one access of a thread.
template <class T> struct alignas(16) Pack {
    T at[16 / sizeof(T)];
};

DEVICE bool is_aligned(const void *a) { return ((u64)a & 15) == 0; }

// A grid's threads go through items in steps.
DEVICE u64 first_item() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
DEVICE u64 item_step() { return (u64)gridDim.x * blockDim.x; }
#define FOR_EACH_ITEM(i, count) for (u64 i = first_item(); i < (count); i += item_step())

template <class V> struct Sum {
    static __device__ V of(V a, V b) { return a + b; }
};
// Not a number if one of them is none.
struct Largest {
    static __device__ float of(float a, float b) { return b > a || is_nan(b) ? b : a; }
};

template <class By, class V> DEVICE V over_warp(V value) {
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        V other = __shfl_xor_sync(0xffffffff, value, lanes);
        // Both lanes add in one order: the sum has the same bits in all.
        value = threadIdx.x & lanes ? By::of(other, value) : By::of(value, other);
    }
    return value;
}

// Of all threads of the block, for all of them.
template <class By, class V> DEVICE V over_block(V value, V nothing) {
    __shared__ V parts[32];
    value = over_warp<By>(value);
    __syncthreads(); // whoever still reads the last result
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    u32 lane = threadIdx.x % 32;
    value = lane < blockDim.x / 32 ? parts[lane] : nothing;
    return over_warp<By>(value);
}

template <class V> DEVICE V block_sum(V value) { return over_block<Sum<V>, V>(value, V(0)); }
DEVICE float block_max(float value) {
    return over_block<Largest>(value, from_bits(0xff800000));
}

// What a row of a loss says.
struct Tally {
    double loss;
    u64 correct;
};
