// Values of ranks that share the device, each in the memory of its own process. Where a rank's values begin is a number
// that its stream has written before.

DEVICE const u8 *of_peer(const Peers &a, u32 peer) {
    const u8 *base = (const u8 *)a.bases[peer];
    const u64 *place = (const u64 *)a.places[peer];
    return place ? base + *place + a.from : base;
}

// Adds up in the order of the peers, and rounds once.
template <class T> DEVICE void sum_of_peers(const Peers &a) {
    constexpr u32 MOST = sizeof(Peers::bases) / sizeof(void *);
    const T *values[MOST];
    for (u32 peer = 0; peer < a.number; peer++) values[peer] = (const T *)of_peer(a, peer);
    T *out = (T *)a.out;
    FOR_EACH_ITEM(i, a.count) {
        float sum = load(values[0][i]);
        for (u32 peer = 1; peer < a.number; peer++) sum += load(values[peer][i]);
        out[i] = store<T>(sum);
    }
}

#define ENTRY(suffix, T)                                                                           \
    KERNEL(sum_of_peers_##suffix, Peers) { sum_of_peers<T>(a); }
FOR_EACH_TYPE(ENTRY)

// Of the first peer, `count` bytes, an even number.
KERNEL(copy_of_peer, Peers) {
    const u8 *from = of_peer(a, 0);
    u8 *out = (u8 *)a.out;
    u64 packs = ((u64)from | (u64)out) % 16 == 0 ? a.count / 16 : 0;
    FOR_EACH_ITEM(i, packs) ((Pack<f32> *)out)[i] = ((const Pack<f32> *)from)[i];
    for (u64 i = 8 * packs + first_item(); i < a.count / 2; i += item_step()) {
        ((u16 *)out)[i] = ((const u16 *)from)[i];
    }
}
