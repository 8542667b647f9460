// The part of cuDNN 9 that convolutions ask for, by its definitions and on the processor: what is asked
// for in another way than the library's manual says is refused, or computes something else.

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

enum { SUCCESS = 0, BAD_PARAM = 2000, NOT_SUPPORTED = 3000 };
enum { FLOAT = 0, BFLOAT16 = 9 };

enum { NCHW = 0, NHWC = 1 };

struct Array { // a tensor or a filter
    int kind, size[4], format;
    int count() const { return size[0] * size[1] * size[2] * size[3]; }
    // Where element i, counted with the last axis fastest, lies in memory.
    int place(int i) const {
        int plane = size[2] * size[3], channel = i / plane % size[1];
        return format == NCHW ? i : (i / plane / size[1] * plane + i % plane) * size[1] + channel;
    }
};
struct Convolution {
    int padding[2], stride[2], dilation[2], groups, math;
};
struct Activation {
    int mode, numbers;
};
struct Answer {
    int algorithm, status;
    float time;
    size_t memory;
    int determinism, math, reserved[3];
};

static const size_t WORKSPACE = 1000;

static std::vector<double> read(const Array &of, const void *data) {
    std::vector<double> values(of.count());
    for (int i = 0; i < of.count(); i++) {
        float value;
        uint32_t bits = of.kind == BFLOAT16 ? uint32_t(((const uint16_t *)data)[of.place(i)]) << 16 : 0;
        memcpy(&value, of.kind == FLOAT ? (const void *)((const float *)data + of.place(i)) : &bits, 4);
        values[i] = value;
    }
    return values;
}

// data = alpha values + beta data, and on top a number for each index along the second axis.
static void write(const Array &of, void *data, const std::vector<double> &values, float alpha, float beta,
                  const std::vector<double> *shift = nullptr) {
    std::vector<double> before(of.count());
    if (beta != 0) before = read(of, data);
    int plane = of.size[2] * of.size[3];
    for (int i = 0; i < of.count(); i++) {
        float value = float(alpha * values[i] + beta * before[i]);
        if (shift) value += float((*shift)[i / plane % of.size[1]]);
        uint32_t bits;
        memcpy(&bits, &value, 4);
        if (of.kind == FLOAT) ((float *)data)[of.place(i)] = value;
        else ((uint16_t *)data)[of.place(i)] = uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
}

// The math type that the answer of an algorithm is for.
static int math_of(int kind, int algorithm) { return kind == FLOAT ? 0 : algorithm == 2 ? 1 : 2; }

// Whether the sizes are of one convolution, and its arithmetic that of its numbers: all bits of single
// precision whatever an answer says, of halves the answer's; whoever asks for algorithms says what would do.
static bool fits(const Array *x, const Array *w, const Convolution *c, const Array *y, int algorithm = -1) {
    int math = x->kind == FLOAT ? 3 : algorithm < 0 ? 1 : math_of(x->kind, algorithm);
    bool fits = x->kind == w->kind && x->kind == y->kind && c->math == math;
    fits &= x->format == w->format && x->format == y->format;
    fits &= x->size[0] == y->size[0] && w->size[0] == y->size[1] && w->size[1] * c->groups == x->size[1];
    for (int axis = 0; axis < 2; axis++) {
        int window = (w->size[2 + axis] - 1) * c->dilation[axis] + 1;
        int room = x->size[2 + axis] + 2 * c->padding[axis] - window;
        fits &= room >= 0 && room / c->stride[axis] + 1 == y->size[2 + axis];
    }
    return fits && w->size[0] % c->groups == 0;
}

// Calls visit(places in x, w and y) for every product.
template <class F>
static void each(const Array *x, const Array *w, const Convolution *c, const Array *y, F visit) {
    const int *in = x->size, *out = y->size, *window = w->size;
    for (int i = 0; i < w->count() * out[0]; i++) {
        int n = i / w->count(), of_w = i % w->count();
        int column = of_w % window[3], row = of_w / window[3] % window[2];
        int channel = of_w / window[3] / window[2] % window[1], k = of_w / window[3] / window[2] / window[1];
        int from = k / (window[0] / c->groups) * window[1] + channel;
        for (int p = 0; p < out[2] * out[3]; p++) {
            int r = p / out[3] * c->stride[0] + row * c->dilation[0] - c->padding[0];
            int s = p % out[3] * c->stride[1] + column * c->dilation[1] - c->padding[1];
            if (r < 0 || s < 0 || r >= in[2] || s >= in[3]) continue;
            visit(((n * in[1] + from) * in[2] + r) * in[3] + s, of_w, (n * out[1] + k) * out[2] * out[3] + p);
        }
    }
}

// One that cannot be taken, one whose bits change, one that needs too much, and two that are fine.
static int answer(bool is_sane, int kind, int count, int *returned, Answer *answers, int quickest) {
    if (!is_sane || count < 5) return BAD_PARAM;
    Answer all[5] = {
        {4, NOT_SUPPORTED, -1, 0, 1, 0, {}}, {0, 0, 1, 0, 0, 0, {}}, {5, 0, 2, size_t(1) << 40, 1, 0, {}},
        {quickest, 0, 3, WORKSPACE, 1, 0, {}}, {2, 0, 4, 0, 1, 0, {}}};
    for (Answer &one : all) one.math = math_of(kind, one.algorithm);
    memcpy(answers, all, sizeof all);
    *returned = 5;
    return SUCCESS;
}

static int workspace(int algorithm, size_t *bytes) {
    *bytes = algorithm == 5 ? size_t(1) << 40 : algorithm == 2 ? 0 : WORKSPACE;
    return SUCCESS;
}

// The algorithm that was used last.
static int last = -1;

// All of the workspace is the library's to write.
static bool use(int algorithm, void *space, size_t bytes) {
    last = algorithm;
    if (algorithm == 2) return true;
    if (algorithm != 1 && algorithm != 3) return false;
    if (bytes < WORKSPACE) return false;
    memset(space, 0xab, bytes);
    return true;
}

static int multiply(const Array *xd, const void *x, const Array *wd, const void *w, const Convolution *c,
                    const Array *yd, int algorithm, std::vector<double> &sums) {
    if (!fits(xd, wd, c, yd, algorithm)) return BAD_PARAM;
    std::vector<double> of_x = read(*xd, x), of_w = read(*wd, w);
    sums.assign(yd->count(), 0);
    each(xd, wd, c, yd, [&](int i, int j, int k) { sums[k] += of_x[i] * of_w[j]; });
    return SUCCESS;
}

extern "C" {
int cudnnLast() { return last; } // not the library's
size_t cudnnGetVersion() { return 91002; }
int cudnnCreate(void **handle) { return *handle = malloc(1), SUCCESS; }
int cudnnDestroy(void *handle) { return free(handle), SUCCESS; }
int cudnnSetStream(void *, void *) { return SUCCESS; }
int cudnnCreateTensorDescriptor(Array **made) { return *made = new Array(), SUCCESS; }
int cudnnCreateFilterDescriptor(Array **made) { return *made = new Array(), SUCCESS; }
int cudnnCreateConvolutionDescriptor(Convolution **made) { return *made = new Convolution(), SUCCESS; }
int cudnnCreateActivationDescriptor(Activation **made) { return *made = new Activation(), SUCCESS; }
int cudnnSetTensor4dDescriptor(Array *of, int format, int kind, int n, int c, int h, int w) {
    *of = {kind, {n, c, h, w}, format};
    return format == NCHW || format == NHWC ? SUCCESS : BAD_PARAM;
}
int cudnnSetFilter4dDescriptor(Array *of, int kind, int format, int k, int c, int h, int w) {
    *of = {kind, {k, c, h, w}, format};
    return format == NCHW || format == NHWC ? SUCCESS : BAD_PARAM;
}
int cudnnSetConvolution2dDescriptor(Convolution *of, int pad_h, int pad_w, int u, int v, int dilation_h,
                                    int dilation_w, int mode, int compute) {
    *of = {{pad_h, pad_w}, {u, v}, {dilation_h, dilation_w}, 1, 0};
    return mode == 1 && compute == FLOAT ? SUCCESS : BAD_PARAM;
}
int cudnnSetConvolutionGroupCount(Convolution *of, int groups) { return of->groups = groups, SUCCESS; }
int cudnnSetConvolutionMathType(Convolution *of, int math) { return of->math = math, SUCCESS; }
int cudnnSetActivationDescriptor(Activation *of, int mode, int numbers, double) {
    *of = {mode, numbers};
    return SUCCESS;
}

int cudnnGetConvolutionForwardAlgorithm_v7(void *, Array *x, Array *w, Convolution *c, Array *y, int count,
                                           int *returned, Answer *answers) {
    // Images of an odd number of channels by the algorithm that adds biases.
    return answer(fits(x, w, c, y), x->kind, count, returned, answers, x->size[1] % 2 ? 1 : 3);
}
int cudnnGetConvolutionBackwardDataAlgorithm_v7(void *, Array *w, Array *dy, Convolution *c, Array *dx,
                                                int count, int *returned, Answer *answers) {
    return answer(fits(dx, w, c, dy), w->kind, count, returned, answers, 1);
}
int cudnnGetConvolutionBackwardFilterAlgorithm_v7(void *, Array *x, Array *dy, Convolution *c, Array *dw,
                                                  int count, int *returned, Answer *answers) {
    return answer(fits(x, dw, c, dy), x->kind, count, returned, answers, 1);
}
int cudnnGetConvolutionForwardWorkspaceSize(void *, Array *x, Array *w, Convolution *c, Array *y,
                                            int algorithm, size_t *bytes) {
    return fits(x, w, c, y, algorithm) ? workspace(algorithm, bytes) : BAD_PARAM;
}
int cudnnGetConvolutionBackwardDataWorkspaceSize(void *, Array *w, Array *dy, Convolution *c, Array *dx,
                                                 int algorithm, size_t *bytes) {
    return fits(dx, w, c, dy, algorithm) ? workspace(algorithm, bytes) : BAD_PARAM;
}
int cudnnGetConvolutionBackwardFilterWorkspaceSize(void *, Array *x, Array *dy, Convolution *c, Array *dw,
                                                   int algorithm, size_t *bytes) {
    return fits(x, dw, c, dy, algorithm) ? workspace(algorithm, bytes) : BAD_PARAM;
}

int cudnnConvolutionForward(void *, const float *alpha, Array *xd, const void *x, Array *wd, const void *w,
                            Convolution *c, int algorithm, void *space, size_t bytes, const float *beta,
                            Array *yd, void *y) {
    std::vector<double> sums;
    if (!use(algorithm, space, bytes) || multiply(xd, x, wd, w, c, yd, algorithm, sums)) return BAD_PARAM;
    write(*yd, y, sums, *alpha, *beta);
    return SUCCESS;
}
int cudnnConvolutionBiasActivationForward(void *, const float *alpha, Array *xd, const void *x, Array *wd,
                                          const void *w, Convolution *c, int algorithm, void *space,
                                          size_t bytes, const float *beta, Array *zd, const void *, Array *bd,
                                          const void *bias, Activation *activation, Array *yd, void *y) {
    std::vector<double> sums;
    // No activation: mode 5, by algorithm 1 alone, and CUDNN_NOT_PROPAGATE_NAN.
    bool is_sane = activation->mode == 5 && activation->numbers == 0 && algorithm == 1 && *beta == 0 && bd->kind == yd->kind;
    is_sane &= bd->format == yd->format && bd->size[0] == 1 && bd->size[1] == yd->size[1] && bd->size[2] == 1 && bd->size[3] == 1;
    is_sane &= memcmp(zd, yd, sizeof(Array)) == 0 && use(algorithm, space, bytes);
    if (!is_sane || multiply(xd, x, wd, w, c, yd, algorithm, sums)) return BAD_PARAM;
    std::vector<double> shift = read(*bd, bias);
    write(*yd, y, sums, *alpha, 0, &shift);
    return SUCCESS;
}
int cudnnConvolutionBackwardData(void *, const float *alpha, Array *wd, const void *w, Array *dyd,
                                 const void *dy, Convolution *c, int algorithm, void *space, size_t bytes,
                                 const float *beta, Array *dxd, void *dx) {
    if (!fits(dxd, wd, c, dyd, algorithm) || !use(algorithm, space, bytes)) return BAD_PARAM;
    std::vector<double> of_w = read(*wd, w), of_y = read(*dyd, dy), sums(dxd->count());
    each(dxd, wd, c, dyd, [&](int i, int j, int k) { sums[i] += of_w[j] * of_y[k]; });
    write(*dxd, dx, sums, *alpha, *beta);
    return SUCCESS;
}
int cudnnConvolutionBackwardFilter(void *, const float *alpha, Array *xd, const void *x, Array *dyd,
                                   const void *dy, Convolution *c, int algorithm, void *space, size_t bytes,
                                   const float *beta, Array *dwd, void *dw) {
    if (!fits(xd, dwd, c, dyd, algorithm) || !use(algorithm, space, bytes)) return BAD_PARAM;
    std::vector<double> of_x = read(*xd, x), of_y = read(*dyd, dy), sums(dwd->count());
    each(xd, dwd, c, dyd, [&](int i, int j, int k) { sums[j] += of_x[i] * of_y[k]; });
    write(*dwd, dw, sums, *alpha, *beta);
    return SUCCESS;
}
}
