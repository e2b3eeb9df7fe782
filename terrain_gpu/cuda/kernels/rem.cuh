// Rem's union-find. Label is int, unsigned or i64. Parents only decrease, so a root is the least vertex of
// its tree.
__device__ __forceinline__ Label look(const Label* at) { return *(const volatile Label*)at; }
__device__ __forceinline__ int swap_if(int* at, int old, int now) { return atomicCAS(at, old, now); }
__device__ __forceinline__ unsigned swap_if(unsigned* at, unsigned old, unsigned now) {
    return atomicCAS(at, old, now);
}
__device__ __forceinline__ i64 swap_if(i64* at, i64 old, i64 now) {
    return (i64)atomicCAS((u64*)at, (u64)old, (u64)now);
}

// Climb from both ends. Attach the vertex with the greater parent to the other vertex's parent
// (splicing) and continue from its old parent, until that is a root.
__device__ __forceinline__ void join(Label* parent, Label u, Label v) {
    for (;;) {
        Label up = look(parent + u), other = look(parent + v);
        if (up == other) return;
        if (up < other) {
            const Label low = up, end = u;
            up = other, other = low;
            u = v, v = end;
        }
        const bool done = swap_if(parent + u, up, other) == up;
        if (u != up) u = up;
        else if (done) return;
    }
}

// Find the root of a vertex and make it the vertex's parent.
__device__ __forceinline__ Label to_root(Label* parent, i64 v) {
    for (;;) {
        const Label up = look(parent + v), next = look(parent + up);
        if (up == next) return up;
        parent[v] = next;
    }
}
