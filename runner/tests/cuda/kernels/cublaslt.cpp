// The part of cuBLASLt that products ask for, by its manual and on the processor: matrices stand in columns,
// D = alpha op(A) op(B) + beta C, a bias along D's columns. What is asked for in another way is refused.

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

enum { SUCCESS = 0, INVALID_VALUE = 7, NOT_SUPPORTED = 15 };
enum { F32 = 0, BF16 = 14 };
enum { COMPUTE_F32 = 68, COMPUTE_TF32 = 77 };

struct Layout {
    int kind;
    uint64_t rows, columns;
    int64_t leading;
    int32_t batch;
    int64_t stride;
};
struct Operation {
    int compute, scale;
    int32_t transposed[2];
    int epilogue;
    void *bias;
};
struct Preference {
    uint64_t workspace;
    uint32_t alignment[4];
};
struct Algorithm {
    uint64_t data[8];
};
struct Answer {
    Algorithm algorithm;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};

static float number(int kind, const void *at, int64_t i) {
    if (kind == F32) return ((const float *)at)[i];
    uint32_t bits = uint32_t(((const uint16_t *)at)[i]) << 16;
    float value;
    return memcpy(&value, &bits, 4), value;
}

static void put(int kind, void *at, int64_t i, float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if (kind == F32) ((float *)at)[i] = value;
    else ((uint16_t *)at)[i] = uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Rows and columns of what a product takes.
static void sizes(const Layout *of, bool transposed, uint64_t *rows, uint64_t *columns) {
    *rows = transposed ? of->columns : of->rows;
    *columns = transposed ? of->rows : of->columns;
}

static bool fits(const Operation *op, const Layout *a, const Layout *b, const Layout *c) {
    uint64_t m, k, depth, n;
    sizes(a, op->transposed[0], &m, &k);
    sizes(b, op->transposed[1], &depth, &n);
    bool fits = k == depth && c->rows == m && c->columns == n && a->kind == b->kind;
    const Layout *all[] = {a, b, c};
    for (const Layout *of : all) {
        fits &= of->leading >= int64_t(of->rows) && of->batch == c->batch && (of->kind == F32 || of->kind == BF16);
    }
    fits &= op->scale == F32 && (op->compute == COMPUTE_F32 || (op->compute == COMPUTE_TF32 && a->kind == F32));
    return fits && (op->epilogue == 1 || (op->epilogue == 4 && op->bias));
}

// The first that is expected, one that is refused when it is asked for, and another.
enum { FIRST = 7, REFUSED = 8, OTHER = 9 };
static uint64_t last = 0;

extern "C" {
uint64_t cublasLtLast() { return last; } // not the library's
size_t cublasLtGetVersion() { return 130100; }
int cublasLtCreate(void **handle) { return *handle = malloc(1), SUCCESS; }
int cublasLtDestroy(void *handle) { return free(handle), SUCCESS; }
int cublasLtMatrixLayoutCreate(Layout **made, int kind, uint64_t rows, uint64_t columns, int64_t leading) {
    *made = new Layout{kind, rows, columns, leading, 1, 0};
    return SUCCESS;
}
int cublasLtMatrixLayoutSetAttribute(Layout *of, int attribute, const void *value, size_t bytes) {
    if (attribute == 5 && bytes == 4) return of->batch = *(const int32_t *)value, SUCCESS;
    if (attribute == 6 && bytes == 8) return of->stride = *(const int64_t *)value, SUCCESS;
    return INVALID_VALUE;
}
int cublasLtMatmulDescCreate(Operation **made, int compute, int scale) {
    *made = new Operation{compute, scale, {0, 0}, 1, nullptr};
    return SUCCESS;
}
int cublasLtMatmulDescSetAttribute(Operation *of, int attribute, const void *value, size_t bytes) {
    if ((attribute == 3 || attribute == 4) && bytes == 4) {
        return of->transposed[attribute - 3] = *(const int32_t *)value, SUCCESS;
    }
    if (attribute == 7 && bytes == 4) return of->epilogue = *(const int *)value, SUCCESS;
    if (attribute == 8 && bytes == 8) return of->bias = *(void *const *)value, SUCCESS;
    return INVALID_VALUE;
}
int cublasLtMatmulPreferenceCreate(Preference **made) { return *made = new Preference(), SUCCESS; }
int cublasLtMatmulPreferenceDestroy(Preference *of) { return delete of, SUCCESS; }
int cublasLtMatmulPreferenceSetAttribute(Preference *of, int attribute, const void *value, size_t bytes) {
    if (attribute == 1 && bytes == 8) return of->workspace = *(const uint64_t *)value, SUCCESS;
    if (attribute >= 5 && attribute <= 8 && bytes == 4) {
        return of->alignment[attribute - 5] = *(const uint32_t *)value, SUCCESS;
    }
    return INVALID_VALUE;
}
int cublasLtMatmulAlgoGetHeuristic(void *, Operation *op, Layout *a, Layout *b, Layout *c, Layout *d,
                                   Preference *preference, int most, Answer *answers, int *count) {
    if (!fits(op, a, b, c) || memcmp(c, d, sizeof(Layout)) || preference->workspace == 0) return INVALID_VALUE;
    const uint64_t known[3] = {FIRST, REFUSED, OTHER};
    for (*count = 0; *count < most && *count < 3; ++*count) {
        // Words that make an algorithm hold for these alignments alone.
        answers[*count] = {{{known[*count], preference->alignment[0], preference->alignment[1], preference->alignment[2]}}, 0, SUCCESS, 1, {}};
    }
    return SUCCESS;
}
int cublasLtMatmul(void *, Operation *op, const float *alpha, const void *a, Layout *of_a, const void *b,
                   Layout *of_b, const float *beta, const void *c, Layout *of_c, void *d, Layout *of_d,
                   const Algorithm *algorithm, void *workspace, size_t bytes, void *) {
    if (!fits(op, of_a, of_b, of_c) || c != d || of_c != of_d || !workspace || bytes == 0) return INVALID_VALUE;
    const void *places[3] = {a, b, c};
    for (int i = 0; i < 3; i++) {
        uint64_t alignment = algorithm->data[1 + i];
        if (alignment == 0 || (uint64_t)places[i] % alignment) return INVALID_VALUE;
    }
    if (algorithm->data[0] == REFUSED) return NOT_SUPPORTED;
    last = algorithm->data[0];
    uint64_t m, k;
    sizes(of_a, op->transposed[0], &m, &k);
    for (int32_t matrix = 0; matrix < of_c->batch; matrix++) {
        for (uint64_t i = 0; i < m; i++) {
            for (uint64_t j = 0; j < of_c->columns; j++) {
                double sum = 0;
                for (uint64_t l = 0; l < k; l++) {
                    int64_t in_a = op->transposed[0] ? l + i * of_a->leading : i + l * of_a->leading;
                    int64_t in_b = op->transposed[1] ? j + l * of_b->leading : l + j * of_b->leading;
                    sum += double(number(of_a->kind, a, matrix * of_a->stride + in_a)) *
                           number(of_b->kind, b, matrix * of_b->stride + in_b);
                }
                int64_t in_c = matrix * of_c->stride + i + j * of_c->leading;
                float value = float(*alpha * sum);
                if (*beta != 0) value += *beta * number(of_c->kind, c, in_c);
                if (op->epilogue == 4) value += number(of_c->kind, op->bias, i);
                put(of_c->kind, d, in_c, value);
            }
        }
    }
    return SUCCESS;
}
}
