// A tiled matrix product on the plain cores, c [m, n] = a [m, k] b [k, n] (+ c), for where no library
// is, and for tests. Matrices lie anyhow: two strides each, and two more for a batch of two axes.

#define TILE 64
#define DEEP 16

// Loads a tile: 64 outer x 16 inner elements as tile[inner][outer], zeros outside.
template <class T>
DEVICE void load_tile(float tile[DEEP][TILE + 1], const T *from, u64 outer_stride, u64 inner_stride,
                      u32 outer, u32 inner, u32 outer_end, u32 inner_end) {
    for (u32 i = threadIdx.x; i < TILE * DEEP; i += 256) {
        // Neighbouring threads read neighbouring elements, whichever axis that is.
        u32 o = inner_stride == 1 ? i / DEEP : i % TILE, k = inner_stride == 1 ? i % DEEP : i / TILE;
        bool in = outer + o < outer_end && inner + k < inner_end;
        tile[k][o] = in ? load(from[(outer + o) * outer_stride + (inner + k) * inner_stride]) : 0;
    }
}

template <class T, class Out> DEVICE void product(const Product &p) {
    __shared__ float left[DEEP][TILE + 1], right[DEEP][TILE + 1];
    u32 row = blockIdx.y * TILE, column = blockIdx.x * TILE;
    u32 own_row = threadIdx.x / 16 * 4, own_column = threadIdx.x % 16;
    for (u32 batch = blockIdx.z; batch < p.batch[0] * p.batch[1]; batch += gridDim.z) {
        u64 outer = batch / p.batch[1], inner = batch % p.batch[1];
        const T *a = (const T *)p.a + outer * p.a_batch[0] + inner * p.a_batch[1];
        const T *b = (const T *)p.b + outer * p.b_batch[0] + inner * p.b_batch[1];
        Out *c = (Out *)p.c + outer * p.c_batch[0] + inner * p.c_batch[1];
        float sums[4][4] = {};
        for (u32 k = 0; k < p.k; k += DEEP) {
            load_tile(left, a, p.a_strides[0], p.a_strides[1], row, k, p.m, p.k);
            load_tile(right, b, p.b_strides[1], p.b_strides[0], column, k, p.n, p.k);
            __syncthreads();
#pragma unroll
            for (u32 t = 0; t < DEEP; t++) {
                for (u32 i = 0; i < 4; i++) {
                    for (u32 j = 0; j < 4; j++) {
                        sums[i][j] += left[t][own_row + i] * right[t][own_column + 16 * j];
                    }
                }
            }
            __syncthreads();
        }
        for (u32 i = 0; i < 4; i++) {
            for (u32 j = 0; j < 4; j++) {
                u32 r = row + own_row + i, s = column + own_column + 16 * j;
                if (r >= p.m || s >= p.n) continue;
                Out *place = c + r * p.c_strides[0] + s * p.c_strides[1];
                *place = store<Out>(p.accumulate ? load(*place) + sums[i][j] : sums[i][j]);
            }
        }
    }
}

#define ENTRY(suffix, T)                                                                           \
    KERNEL(product_##suffix, Product) { product<T, T>(a); }                                        \
    KERNEL(product_##suffix##_to_f32, Product) { product<T, float>(a); }
FOR_EACH_TYPE(ENTRY)
