// Factors of matrix products in eight bits: a tensor's largest magnitude, its codes, and numbers of them again.
// What comes out are rows along which products sum, each filled up with zeros to whole accesses of 16 bytes.

// The largest magnitude of each of `number` parts, one a block.
KERNEL(eight_largest, Eight) {
    const Bf16 *x = (const Bf16 *)a.x;
    u64 count = a.rows * a.columns, whole = is_aligned(x) ? count / 8 : 0;
    float largest = 0;
    FOR_EACH_ITEM(i, whole) {
        Pack<Bf16> pack = ((const Pack<Bf16> *)x)[i];
        for (Bf16 value : pack.at) largest = Largest::of(largest, fabsf(load(value)));
    }
    for (u64 i = 8 * whole + first_item(); i < count; i += item_step()) {
        largest = Largest::of(largest, fabsf(load(x[i])));
    }
    largest = block_max(largest);
    if (threadIdx.x == 0) ((float *)a.parts)[blockIdx.x] = largest;
}

// The power of two that all values are multiplied by, in all threads; 1 where one of them is no number. The
// first block tells who multiplies codes.
DEVICE float eight_scale(const Eight &a) {
    float largest = 0;
    for (u32 i = threadIdx.x; i < a.number; i += blockDim.x) {
        largest = Largest::of(largest, ((const float *)a.parts)[i]);
    }
    largest = block_max(largest);
    float scale = is_finite(largest) ? power_of_two(a.format, largest) : 1;
    if (blockIdx.x == 0 && threadIdx.x == 0) *(float *)a.back = 1 / scale;
    return scale;
}

// Codes of eight neighbours, the first in the lowest byte.
DEVICE u64 eight_codes(const ShortFloat &format, const Pack<Bf16> &pack, float scale) {
    u64 codes = 0;
#pragma unroll
    for (u32 half = 0; half < 2; half++) {
        Pack<float> four;
#pragma unroll
        for (u32 j = 0; j < 4; j++) four.at[j] = load(pack.at[4 * half + j]);
        codes |= (u64)format.codes(four, scale) << (32 * half);
    }
    return codes;
}

// Rows as they are: eight codes at a time, of values that stand in one row.
KERNEL(eight_rows, Eight) {
    float scale = eight_scale(a);
    ShortFloat format(a.format);
    const Bf16 *x = (const Bf16 *)a.x;
    u64 eights = a.pitch / 8;
    bool packed = is_aligned(x) && a.columns % 8 == 0;
    FOR_EACH_ITEM(i, a.rows * eights) {
        u64 row = i / eights, column = i % eights * 8, codes = 0;
        const Bf16 *from = x + row * a.columns + column;
        if (packed && column < a.columns) {
            codes = eight_codes(format, *(const Pack<Bf16> *)from, scale);
        } else {
            for (u32 j = 0; j < 8 && column + j < a.columns; j++) {
                codes |= (u64)format.code(load(from[j]) * scale) << (8 * j);
            }
        }
        ((u64 *)a.out)[i] = codes;
    }
}

// Columns become rows, by tiles in shared memory.
#define SIDE 64

KERNEL(eight_columns, Eight) {
    // A tile's column, with room that spreads neighbouring columns over the banks.
    __shared__ u32 tile[SIDE][SIDE / 4 + 1];
    float scale = eight_scale(a);
    ShortFloat format(a.format);
    const Bf16 *x = (const Bf16 *)a.x;
    bool packed = is_aligned(x) && a.columns % 8 == 0;
    u64 across = (a.columns + SIDE - 1) / SIDE, down = (a.pitch + SIDE - 1) / SIDE;
    for (u64 at = blockIdx.x; at < across * down; at += gridDim.x) {
        u64 first_row = at / across * SIDE, first_column = at % across * SIDE;
        for (u32 i = threadIdx.x; i < SIDE * SIDE / 8; i += blockDim.x) {
            u64 row = first_row + i / 8, column = first_column + i % 8 * 8;
            const Bf16 *from = x + row * a.columns + column;
            Pack<Bf16> pack = {};
            if (row < a.rows && packed && column < a.columns) pack = *(const Pack<Bf16> *)from;
            else if (row < a.rows) {
                for (u32 j = 0; j < 8 && column + j < a.columns; j++) pack.at[j] = from[j];
            }
            u64 codes = eight_codes(format, pack, scale);
            for (u32 j = 0; j < 8; j++) ((u8 *)tile[i % 8 * 8 + j])[i / 8] = (u8)(codes >> (8 * j));
        }
        __syncthreads();
        for (u32 i = threadIdx.x; i < SIDE * SIDE / 8; i += blockDim.x) {
            u64 column = first_column + i / 8, row = first_row + i % 8 * 8;
            if (column >= a.columns || row >= a.pitch) continue;
            const u32 *codes = tile[i / 8] + i % 8 * 2;
            *(u64 *)((u8 *)a.out + column * a.pitch + row) = (u64)codes[1] << 32 | codes[0];
        }
        __syncthreads();
    }
}

// Numbers of codes, for products in bf16, which has all of them. `rows` rows of `pitch` codes.
KERNEL(eight_widen, Eight) {
    float back = *(const float *)a.back;
    ShortFloat format(a.format);
    FOR_EACH_ITEM(i, a.rows * a.pitch / 8) {
        u64 codes = ((const u64 *)a.x)[i];
        Pack<Bf16> pack;
        for (u32 j = 0; j < 8; j++) pack.at[j] = store<Bf16>(format.value(codes >> (8 * j) & 0xff) * back);
        ((Pack<Bf16> *)a.out)[i] = pack;
    }
}
