// Softmax cross entropy of logits that a tensor group has divided by classes: what the ranks tell each other of a row,
// and what follows from the numbers of all. Every rank adds them up in one order, so all have one loss.

// Numbers of a row: the largest logit, the sum of exp(x - largest), the target's logit, the class of the largest, and
// for smoothed labels the sum of x - largest.
constexpr u32 WORDS = 5;

#define PADDING 0xffffffffu

struct Least {
    static __device__ u32 of(u32 a, u32 b) { return a < b ? a : b; }
};

// Of each row this rank's numbers, at its place among those of all ranks; zero at theirs.
template <class T> DEVICE void partial_loss(const VocabularyLoss &a) {
    u64 apart = a.rows * WORDS;
    FOR_EACH_ITEM(i, a.ranks * apart) {
        if (i / apart != a.tensor_rank) ((float *)a.numbers)[i] = 0;
    }
    FOR_EACH_ROW(row, a.rows) {
        const T *x[1] = {(const T *)a.x + row * a.n};
        Exponentials sum = row_exponentials(x[0], a.own);
        float most = sum.most;
        // The first of the largest; 0 if there is none, as among what is not a number.
        u32 first = 0xffffffff;
        double distance = 0;
        bool is_smoothed = a.smoothing > 0;
        each_of_row(x, a.own, [&](const float(&v)[1], u64 i) {
            if (v[0] == most) first = Least::of(first, (u32)i);
            if (is_smoothed) distance += v[0] - most;
        });
        first = over_block<Least>(first, 0xffffffffu);
        distance = block_sum(distance);
        if (threadIdx.x > 0) continue;
        float *numbers = (float *)a.numbers + a.tensor_rank * apart + row * WORDS;
        u64 column = (u64)((const u32 *)a.target)[row] - a.first;
        numbers[0] = most;
        numbers[1] = sum.total;
        numbers[2] = column < a.own ? load(x[0][column]) : 0;
        numbers[3] = a.own > 0 ? (float)(a.first + (first == 0xffffffff ? 0 : first)) : 0;
        numbers[4] = (float)distance;
    }
}

// All of a row, from what the ranks tell.
struct Judged {
    double total, distance;
    float most;
    u32 prediction;
};

DEVICE Judged judge(const VocabularyLoss &a, u64 row) {
    const float *of_row = (const float *)a.numbers + row * WORDS;
    u64 apart = a.rows * WORDS;
    Judged all = {0, 0, from_bits(0xff800000), 0};
    for (u64 rank = 0; rank < a.ranks; rank++) all.most = Largest::of(all.most, of_row[rank * apart]);
    bool found = false;
    for (u64 rank = 0; rank < a.ranks && rank * a.n < a.all; rank++) {
        const float *numbers = of_row + rank * apart;
        u64 own = min(a.n, a.all - rank * a.n);
        double below = numbers[0] - all.most;
        all.total += numbers[1] * exp(below);
        all.distance += numbers[4] + own * below;
        if (numbers[0] == all.most && !found) all.prediction = (u32)numbers[3], found = true;
    }
    return all;
}

// What a row's gradient follows from, as without a group, and each row's loss and whether its prediction was right.
KERNEL(divided_entropy, VocabularyLoss) {
    FOR_EACH_ITEM(row, a.rows) {
        Judged judged = judge(a, row);
        float *statistics = (float *)a.saved + 2 * row;
        statistics[0] = judged.most;
        statistics[1] = (float)(1 / judged.total);
        u32 target = ((const u32 *)a.target)[row];
        Tally tally = {0, 0};
        if (target != PADDING) {
            const float *numbers = (const float *)a.numbers + (target / a.n * a.rows + row) * WORDS;
            double expected = numbers[2] - judged.most, smoothing = a.smoothing;
            if (smoothing > 0) {
                expected = (1 - smoothing) * expected + smoothing * judged.distance / (double)a.all;
            }
            tally.loss = log(judged.total) - expected;
            tally.correct = judged.prediction == target;
        }
        ((Tally *)a.scratch)[row] = tally;
    }
}

// May be written over the logits.
template <class T> DEVICE void divided_entropy_gradient(const VocabularyLoss &a) {
    float spread = a.smoothing / a.all, on_target = 1 - a.smoothing;
    FOR_EACH_ROW(row, a.rows) {
        const T *x = (const T *)a.x + row * a.n;
        T *g = (T *)a.out + row * a.n;
        u32 target = ((const u32 *)a.target)[row];
        float most = ((const float *)a.saved)[2 * row], factor = ((const float *)a.saved)[2 * row + 1];
        u64 own = target == PADDING ? 0 : a.own, column = target - a.first;
        FOR_EACH_COLUMN(i, a.n) {
            float value = expf(load(x[i]) - most) * factor - (i == column ? on_target : 0) - spread;
            g[i] = store<T>(i < own ? value * a.scale : 0);
        }
    }
}

#define ENTRY(suffix, T)                                                                           \
    KERNEL(partial_loss_##suffix, VocabularyLoss) { partial_loss<T>(a); }                          \
    KERNEL(divided_entropy_gradient_##suffix, VocabularyLoss) { divided_entropy_gradient<T>(a); }
FOR_EACH_TYPE(ENTRY)
