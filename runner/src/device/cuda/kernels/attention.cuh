// Where one head's vectors are.
template <class T> struct Vectors {
    T *data;
    u64 stride;
};

template <class T>
DEVICE Vectors<T> vectors(const void *data, const u64 *strides, u32 sample, u32 head) {
    return {(T *)data + sample * strides[0] + head * strides[1], strides[2]};
}
