// Matrix units (mma.sync, sm_80 and later), loads of their fragments, and copies that run beside a block.
//
// Fragments of m16n8k16 of halves, and of m16n8k8 of single precision rounded to TF32, by the PTX manual: lane
// l has rows l/4 and l/4 + 8 of a 16 x 8 result, columns 2 (l % 4) and the next. A result is, rounded, the left
// factor of the next product: of halves two results side by side, packed; of TF32 one, whose columns are taken
// in another order, as rows of the right factor are then.

#if !defined(EMULATOR) && __CUDA_ARCH__ < 800
#define NO_MATRIX_UNITS
#endif

// What a type of tensors is to the matrix units: the depth of a product, and elements of sixteen bytes.
template <class T> struct Matrix;

#if defined(EMULATOR) || defined(NO_MATRIX_UNITS)
#define MULTIPLY(instruction)                                                                      \
    static __device__ void multiply(float (&)[4], const u32 (&)[4], u32, u32) {}
#define PACK(T, type)                                                                              \
    static __device__ u32 packed(float low, float high) {                                          \
        return store<T>(low).bits | (u32)store<T>(high).bits << 16;                                \
    }
#else
#define MULTIPLY(instruction)                                                                      \
    static __device__ __forceinline__ void multiply(float (&c)[4], const u32 (&a)[4], u32 right,   \
                                                    u32 below) {                                   \
        asm("mma.sync.aligned." instruction " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "      \
            "{%0, %1, %2, %3};"                                                                    \
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                       \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(right), "r"(below));                 \
    }
#define PACK(T, type)                                                                              \
    static __device__ __forceinline__ u32 packed(float low, float high) {                          \
        u32 pair;                                                                                  \
        asm("cvt.rn." type "x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));               \
        return pair;                                                                               \
    }
#endif

template <> struct Matrix<Bf16> {
    static constexpr int DEPTH = 16, PIECE = 8;
    MULTIPLY("m16n8k16.row.col.f32.bf16.bf16.f32")
    PACK(Bf16, "bf16")
};
template <> struct Matrix<F16> {
    static constexpr int DEPTH = 16, PIECE = 8;
    MULTIPLY("m16n8k16.row.col.f32.f16.f16.f32")
    PACK(F16, "f16")
};
template <> struct Matrix<float> {
    static constexpr int DEPTH = 8, PIECE = 4;
    MULTIPLY("m16n8k8.row.col.f32.tf32.tf32.f32")
};

// The TF32 number nearest to one of single precision, ties away from zero.
DEVICE u32 tf32(u32 number) {
#if defined(EMULATOR) || defined(NO_MATRIX_UNITS)
    return (number & 0x7f800000) == 0x7f800000 ? number : number + 0x1000 & 0xffffe000;
#else
    u32 rounded;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(from_bits(number)));
    return rounded;
#endif
}

// Results side by side, of as many columns as a product is deep, as its left factor.
template <class T> DEVICE void as_left(u32 (&left)[4], const float (*results)[4]) {
    if constexpr (sizeof(T) == 2) {
        left[0] = Matrix<T>::packed(results[0][0], results[0][1]);
        left[1] = Matrix<T>::packed(results[0][2], results[0][3]);
        left[2] = Matrix<T>::packed(results[1][0], results[1][1]);
        left[3] = Matrix<T>::packed(results[1][2], results[1][3]);
    } else {
        left[0] = tf32(bits(results[0][0]));
        left[1] = tf32(bits(results[0][2]));
        left[2] = tf32(bits(results[0][1]));
        left[3] = tf32(bits(results[0][3]));
    }
}

// Two neighbours where they belong.
template <class T> DEVICE void store_pair(T *at, float low, float high) {
    if constexpr (sizeof(T) == 2) {
        *(u32 *)at = Matrix<T>::packed(low, high);
    } else {
        at[0] = low, at[1] = high;
    }
}

// Powers of two, of numbers up to 0 or little above.
DEVICE float power_of_two(float x) {
#ifdef EMULATOR
    return exp2f(x);
#else
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
#endif
}

#ifdef EMULATOR

// Element `which` of a register.
template <class T> DEVICE float element(u32 word, u32 which) {
    if constexpr (sizeof(T) == 4) return from_bits(word);
    else return load(T{(u16)(word >> 16 * which)});
}

template <class T>
DEVICE void multiply(float (&sums)[4], const u32 (&left)[4], u32 right, u32 right_below) {
    constexpr u32 DEPTH = Matrix<T>::DEPTH, EACH = DEPTH / 8;
    emulator::Fragment own = {left[0], left[1], left[2], left[3], right, right_below};
    const emulator::Fragment *all = emulator::meet(own);
    u32 lane = threadIdx.x % 32;
    float rows[2][DEPTH], columns[2][DEPTH];
    for (u32 i = 0; i < 2; i++) {
        for (u32 k = 0; k < DEPTH; k++) {
            u32 far = k / (DEPTH / 2), at = k % (DEPTH / 2) / EACH;
            rows[i][k] = element<T>(all[lane / 4 * 4 + at].words[i + far * 2], k % EACH);
            columns[i][k] = element<T>(all[(lane % 4 * 2 + i) * 4 + at].words[4 + far], k % EACH);
        }
    }
    for (u32 i = 0; i < 4; i++) {
        float total = 0;
        for (u32 k = 0; k < DEPTH; k++) total += rows[i / 2][k] * columns[i % 2][k];
        sums[i] += total;
    }
}

DEVICE void load_tiles(u32 (&tiles)[4], const void *row, bool turned) {
    u64 place = (u64)row;
    const emulator::Fragment *all = emulator::meet({(u32)place, (u32)(place >> 32)});
    u32 lane = threadIdx.x % 32;
    for (u32 tile = 0; tile < 4; tile++) {
        u16 halves[2];
        for (u32 i = 0; i < 2; i++) {
            u32 along = lane % 4 * 2 + i, across = lane / 4;
            const u32 *words = all[tile * 8 + (turned ? along : across)].words;
            halves[i] = ((const u16 *)(words[0] | (u64)words[1] << 32))[turned ? across : along];
        }
        tiles[tile] = halves[0] | (u32)halves[1] << 16;
    }
}
DEVICE void load_fragments(u32 (&tiles)[4], const void *row) { load_tiles(tiles, row, false); }
DEVICE void load_turned(u32 (&tiles)[4], const void *row) { load_tiles(tiles, row, true); }

DEVICE void copy_beside(void *to, const void *from, bool copies) {
    emulator::copy_beside(to, from, copies);
}
DEVICE void end_group() { emulator::end_group(); }
template <int LEFT> DEVICE void wait_for_groups() { emulator::wait_for_groups(LEFT); }

#else

// sums += left right.
template <class T>
DEVICE void multiply(float (&sums)[4], const u32 (&left)[4], u32 right, u32 right_below) {
    Matrix<T>::multiply(sums, left, right, right_below);
}

#ifdef NO_MATRIX_UNITS
DEVICE void load_fragments(u32 (&)[4], const void *) {}
DEVICE void load_turned(u32 (&)[4], const void *) {}
DEVICE void copy_beside(void *, const void *, bool) {}
DEVICE void end_group() {}
template <int LEFT> DEVICE void wait_for_groups() {}
#else

DEVICE u32 in_shared(const void *place) {
    u64 address;
    asm("cvta.to.shared.u64 %0, %1;" : "=l"(address) : "l"(place));
    return (u32)address;
}

// Four tiles of 8 x 8 from shared memory: lane l names row l % 8 of tile l / 8, sixteen bytes each.
DEVICE void load_fragments(u32 (&t)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(t[0]), "=r"(t[1]), "=r"(t[2]), "=r"(t[3])
                 : "r"(in_shared(row))
                 : "memory");
}

// The same, rows and columns of each exchanged.
DEVICE void load_turned(u32 (&t)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(t[0]), "=r"(t[1]), "=r"(t[2]), "=r"(t[3])
                 : "r"(in_shared(row))
                 : "memory");
}

// Sixteen bytes to shared memory, or zeros; here after a wait for its group, and a barrier.
DEVICE void copy_beside(void *to, const void *from, bool copies) {
    u32 bytes = copies ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(in_shared(to)),
                 "l"(__cvta_generic_to_global(from)), "r"(bytes)
                 : "memory");
}
DEVICE void end_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Until at most so many of this thread's groups are under way.
template <int LEFT> DEVICE void wait_for_groups() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

#endif
#endif
