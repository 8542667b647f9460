// A grid of CUDA threads on one thread of the processor, for tests of kernels without a GPU.
//
// One fiber a thread, one block after another. Between two barriers a thread runs until it waits,
// alone: what it reads of shared memory before another thread had its turn is old, so a missing barrier
// shows as wrong numbers. The order of the threads turns round at every barrier and with every
// block. Shared memory begins as NaN. Waiting for what never comes is an error and no hang.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <vector>
#if !defined(__x86_64__)
#include <csetjmp>
#include <ucontext.h>
#endif

struct uint3 {
    unsigned x, y, z;
};

namespace emulator {

constexpr size_t STACK = 256 << 10;
constexpr unsigned WARP = 32;

enum class State : uint8_t { Fresh, Ready, AtBarrier, AtWarp, Done };

// What a thread has that waits, or the scheduler.
#if defined(__x86_64__)
using Place = void *; // the stack, with the registers that calls keep on it
#else
struct Place {
    jmp_buf at;
    ucontext_t beginning;
    bool begun = false;
};
#endif

struct Fiber {
    Place place{}; // where it waits
    std::vector<char> stack;
};

inline std::mutex lock; // shared memory is static: one grid at a time
inline uint3 grid_size, block_size, block_index, thread_index;
inline Place scheduler;
inline std::vector<State> states;
inline std::vector<Fiber *> fibers; // by thread
inline std::vector<Fiber *> idle;
inline Fiber *starting = nullptr;
inline std::function<void()> body;
inline unsigned current = 0, started = 0, threads = 0;
inline bool backwards = false;
inline std::vector<uint32_t> masks, turns;
inline std::vector<uint64_t> slots[2];
inline std::vector<float> shared; // dynamic shared memory, and behind it what nobody may write
inline size_t shared_words = 0;
constexpr size_t GUARD_WORDS = 4096;
inline const char *error = nullptr;

// Copies beside a thread, by group: in every other block as late as they may be, when they are waited for.
struct Copy {
    void *to;
    const void *from;
};
inline std::vector<std::vector<std::vector<Copy>>> groups; // by thread, the last one still open

inline unsigned in_order(unsigned i) { return backwards ? threads - 1 - i : i; }

inline void take_turn(unsigned thread) {
    current = thread;
    thread_index = {thread % block_size.x, thread / block_size.x % block_size.y,
                    thread / block_size.x / block_size.y};
}

#if defined(__x86_64__)
// Goes on at `to`, and keeps in `from` where this went. Without what swapcontext asks the kernel for at every turn,
// the signal mask, and without setjmp's mangled pointers.
extern "C" void emulator_go(Place *from, Place to);
asm(".text\n.weak emulator_go\n.hidden emulator_go\n.type emulator_go, @function\nemulator_go:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n");
inline void resume(Fiber *fiber) { emulator_go(&scheduler, fiber->place); }
inline void pause(Fiber *fiber) { emulator_go(&fiber->place, scheduler); }
// Six registers, where it begins, and where it would return to, which keeps calls aligned.
inline void prepare(Fiber *fiber, void (*main)()) {
    uintptr_t top = uintptr_t(fiber->stack.data() + STACK) & ~uintptr_t(15);
    uintptr_t *stack = reinterpret_cast<uintptr_t *>(top) - 8;
    for (int i = 0; i < 8; i++) stack[i] = 0;
    stack[6] = uintptr_t(main);
    fiber->place = stack;
}
#else
// Contexts only begin fibers: swapcontext asks the kernel for the signal mask at every turn.
inline void resume(Fiber *fiber) {
    if (_setjmp(scheduler.at) != 0) return;
    if (fiber->place.begun) _longjmp(fiber->place.at, 1);
    fiber->place.begun = true;
    setcontext(&fiber->place.beginning);
}
inline void pause(Fiber *fiber) {
    if (_setjmp(fiber->place.at) == 0) _longjmp(scheduler.at, 1);
}
inline void prepare(Fiber *fiber, void (*main)()) {
    getcontext(&fiber->place.beginning);
    fiber->place.beginning.uc_stack.ss_sp = fiber->stack.data();
    fiber->place.beginning.uc_stack.ss_size = STACK;
    fiber->place.beginning.uc_link = nullptr;
    makecontext(&fiber->place.beginning, main, 0);
}
#endif

// Runs threads that have not begun, until one of them waits.
inline void fiber_main() {
    Fiber *self = starting;
    for (;;) {
        while (started < threads) {
            unsigned thread = in_order(started++);
            take_turn(thread);
            fibers[thread] = self;
            body();
            states[current] = State::Done;
        }
        idle.push_back(self);
        pause(self);
    }
}

inline void wait(State state) {
    states[current] = state;
    pause(fibers[current]);
}

inline void begin_fiber() {
    if (idle.empty()) {
        Fiber *fiber = new Fiber;
        fiber->stack.resize(STACK);
        prepare(fiber, fiber_main);
        idle.push_back(fiber);
    }
    starting = idle.back();
    idle.pop_back();
    resume(starting);
}

// Lets the lanes of a warp go on that have met in one exchange.
inline void release_warps() {
    for (unsigned first = 0; first < threads; first += WARP) {
        unsigned end = first + WARP < threads ? first + WARP : threads;
        uint32_t waiting = 0, asked = 0;
        for (unsigned t = first; t < end; t++) {
            if (states[t] == State::AtWarp) {
                waiting |= 1u << (t - first);
                asked |= masks[t];
            }
        }
        if (waiting != 0 && waiting == asked) {
            for (unsigned t = first; t < end; t++) {
                if (states[t] == State::AtWarp) states[t] = State::Ready;
            }
        }
    }
}

inline bool run_ready() {
    bool ran = false;
    for (unsigned i = 0; i < threads; i++) {
        unsigned thread = in_order(i);
        if (states[thread] == State::Ready) {
            take_turn(thread);
            resume(fibers[thread]);
            ran = true;
        }
    }
    return ran;
}

// Lets all go on if all that have not ended wait at the barrier; false if nobody is left.
inline bool release_barrier() {
    unsigned waiting = 0, done = 0;
    for (State state : states) {
        waiting += state == State::AtBarrier;
        done += state == State::Done;
    }
    if (done == threads) return false;
    if (waiting + done != threads) {
        error = "some threads wait at a barrier and others for lanes of their warp, or for lanes that ended";
        return false;
    }
    for (State &state : states) {
        if (state == State::AtBarrier) state = State::Ready;
    }
    backwards = !backwards;
    return true;
}

inline void run_block() {
    states.assign(threads, State::Fresh);
    groups.clear();
    started = 0;
    memset(shared.data(), 0xff, shared_words * sizeof(float));
    while (started < threads) begin_fiber();
    do {
        do release_warps();
        while (run_ready());
    } while (release_barrier());
}

inline void check_guard() {
    for (size_t i = shared_words; i < shared.size() && !error; i++) {
        uint32_t word;
        memcpy(&word, &shared[i], sizeof(word));
        if (word != ~0u) error = "a block wrote behind the shared memory that it asked for";
    }
}

// Why it went wrong, or null.
inline const char *run(uint3 grid, uint3 block, unsigned bytes, std::function<void()> work) {
    std::lock_guard<std::mutex> guard(lock);
    grid_size = grid, block_size = block, body = work, error = nullptr;
    threads = block.x * block.y * block.z;
    fibers.assign(threads, nullptr);
    masks.assign(threads, 0), turns.assign(threads, 0);
    slots[0].assign(threads + WARP, ~0ull), slots[1] = slots[0];
    shared_words = (bytes + sizeof(float) - 1) / sizeof(float);
    shared.resize(shared_words + GUARD_WORDS);
    memset(shared.data(), 0xff, shared.size() * sizeof(float));
    for (uint64_t at = 0, all = uint64_t(grid.x) * grid.y * grid.z; at < all && !error; at++) {
        block_index = {unsigned(at % grid.x), unsigned(at / grid.x % grid.y),
                       unsigned(at / grid.x / grid.y)};
        backwards = at % 2 == 1;
        run_block();
    }
    check_guard();
    return error;
}

template <class V> V exchange(uint32_t mask, V value, unsigned lane) {
    static_assert(sizeof(V) <= 8, "one register or two");
    unsigned turn = turns[current]++ & 1, base = current / WARP * WARP;
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof(V));
    slots[turn][current] = bits;
    unsigned lanes = threads - base < WARP ? threads - base : WARP;
    masks[current] = mask & (lanes == WARP ? ~0u : (1u << lanes) - 1);
    wait(State::AtWarp);
    memcpy(&value, &slots[turn][base + lane % WARP], sizeof(V));
    return value;
}

// What lanes of a warp show each other all at once: every lane's, by lane, until its next exchange.
struct Fragment {
    uint32_t words[8];
};
inline std::vector<Fragment> shown[2];

inline const Fragment *meet(const Fragment &own) {
    unsigned turn = turns[current]++ & 1, base = current / WARP * WARP;
    shown[turn].resize(threads);
    shown[turn][current] = own;
    masks[current] = ~0u;
    wait(State::AtWarp);
    return &shown[turn][base];
}

inline std::vector<std::vector<Copy>> &own_groups() {
    if (groups.empty()) groups.assign(threads, {{}});
    return groups[current];
}
inline void copy_beside(void *to, const void *from, bool copies) {
    static const char zeros[16] = {};
    own_groups().back().push_back({to, copies ? from : zeros});
    bool late = (block_index.x + block_index.y + block_index.z) % 2;
    if (!late) memcpy(to, copies ? from : zeros, 16);
}
inline void end_group() { own_groups().emplace_back(); }
inline void wait_for_groups(size_t left) {
    auto &own = own_groups();
    while (own.size() - 1 > left) {
        for (Copy copy : own.front()) memcpy(copy.to, copy.from, 16);
        own.erase(own.begin());
    }
}

template <class To, class From> To bits_of(From from) {
    To to;
    memcpy(&to, &from, sizeof(To));
    return to;
}

} // namespace emulator

#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __restrict__ __restrict
#define gridDim emulator::grid_size
#define blockDim emulator::block_size
#define blockIdx emulator::block_index
#define threadIdx emulator::thread_index

inline void __syncthreads() { emulator::wait(emulator::State::AtBarrier); }
template <class V> V __shfl_xor_sync(uint32_t mask, V value, int lanes) {
    return emulator::exchange(mask, value, emulator::current % emulator::WARP ^ lanes);
}
inline void __syncwarp(uint32_t mask = 0xffffffff) {
    emulator::exchange(mask, uint64_t(0), emulator::current % emulator::WARP);
}
template <class V> V __shfl_sync(uint32_t mask, V value, int lane) {
    return emulator::exchange(mask, value, lane);
}
inline uint32_t __ballot_sync(uint32_t mask, int predicate) {
    unsigned base = emulator::current / emulator::WARP * emulator::WARP;
    unsigned turn = emulator::turns[emulator::current] & 1;
    emulator::exchange(mask, uint64_t(predicate != 0), 0);
    uint32_t votes = 0;
    for (unsigned lane = 0; lane < emulator::WARP && base + lane < emulator::threads; lane++) {
        if (mask >> lane & 1) votes |= uint32_t(emulator::slots[turn][base + lane] & 1) << lane;
    }
    return votes;
}
inline uint32_t __float_as_uint(float x) { return emulator::bits_of<uint32_t>(x); }
inline float __uint_as_float(uint32_t x) { return emulator::bits_of<float>(x); }
inline unsigned long long __double_as_longlong(double x) {
    return emulator::bits_of<unsigned long long>(x);
}
inline int __ffs(uint32_t x) { return __builtin_ffs(int(x)); }
inline int __popc(uint32_t x) { return __builtin_popcount(x); }
inline uint32_t __funnelshift_l(uint32_t low, uint32_t high, uint32_t shift) {
    return uint32_t(((uint64_t(high) << 32 | low) << (shift & 31)) >> 32);
}
inline uint32_t __umulhi(uint32_t a, uint32_t b) { return uint32_t(uint64_t(a) * b >> 32); }
inline float rsqrtf(float x) { return 1 / sqrtf(x); }
template <class A> A min(A a, A b) { return b < a ? b : a; }
template <class A> A max(A a, A b) { return a < b ? b : a; }
