// The minimum spanning forest of a list of edges, in the rounds of O. Boruvka 1926. Macros: EDGE,
// the type of vertices in edges, and LABEL, that of roots: int or long long; KEY and ID, the types of
// the edges' keys and of their indices: unsigned, or unsigned long long.
typedef unsigned char u8;
typedef unsigned long long u64;
typedef long long i64;
typedef EDGE Edge;
typedef LABEL Label;
typedef KEY Key;
typedef ID Id;

struct __align__(2 * sizeof(Edge)) Ends { Edge u, v; };
struct __align__(2 * sizeof(Label)) Pair { Label u, v; };

// Whether key and index are too wide to share a word: then keys are compared first, and indices of
// equal keys afterwards.
constexpr bool WIDE = sizeof(Key) + sizeof(Id) > sizeof(u64);

__device__ __forceinline__ u64 word_of(Key key, Id id) {
    return WIDE ? (u64)key : (u64)key << 32 | id;
}

__device__ __forceinline__ i64 thread() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ __forceinline__ i64 threads() { return (i64)gridDim.x * blockDim.x; }

#include "append.cuh"
#include "rem.cuh"

// List all edges but loops. All threads of a warp append together, here and below.
extern "C" __global__ void start(
    const Ends* edges, i64 m, Pair* pairs_out, Id* ids_out, u64* count
) {
    for (i64 base = thread() - threadIdx.x; base < m; base += threads()) {
        const i64 e = base + threadIdx.x;
        Pair pair = {0, 0};
        if (e < m) {
            const Ends ends = edges[e];
            pair.u = (Label)ends.u;
            pair.v = (Label)ends.v;
        }
        const bool has = pair.u != pair.v;
        const i64 at = append(has, count);
        if (!has) continue;
        pairs_out[at] = pair;
        ids_out[at] = (Id)e;
    }
}

// Split a list of n edges: first those up to the edge of this key and index, then, from the end on,
// the others.
extern "C" __global__ void split(
    const Pair* pairs, const Id* ids, i64 n, const Key* keys, Key key, Id last, Pair* pairs_out,
    Id* ids_out, u64* counts
) {
    for (i64 base = thread() - threadIdx.x; base < n; base += threads()) {
        const i64 k = base + threadIdx.x;
        bool light = false;
        Id id = 0;
        if (k < n) {
            id = ids[k];
            const Key own = keys[id];
            light = own < key || (own == key && id <= last);
        }
        const i64 front = append(light, counts);
        const i64 back = n - 1 - append(k < n && !light, counts + 1);
        if (k >= n) continue;
        const i64 at = light ? front : back;
        pairs_out[at] = pairs[k];
        ids_out[at] = id;
    }
}

// Replace the ends of edges by their roots and drop edges inside a tree. Unless `best` is null, find
// the least word of each root.
extern "C" __global__ void between_trees(
    const Pair* pairs, const Id* ids, i64 n, const Label* parent, const Key* keys, u64* best,
    Pair* pairs_out, Id* ids_out, u64* count
) {
    for (i64 base = thread() - threadIdx.x; base < n; base += threads()) {
        const i64 k = base + threadIdx.x;
        Pair pair = {0, 0};
        if (k < n) {
            pair = pairs[k];
            pair.u = parent[pair.u];
            pair.v = parent[pair.v];
        }
        const bool has = pair.u != pair.v;
        const i64 at = append(has, count);
        if (!has) continue;
        const Id id = ids[k];
        pairs_out[at] = pair;
        ids_out[at] = id;
        if (!best) continue;
        const u64 word = word_of(keys[id], id);
        if (word < *(volatile u64*)&best[pair.u]) atomicMin(&best[pair.u], word);
        if (word < *(volatile u64*)&best[pair.v]) atomicMin(&best[pair.v], word);
    }
}

// Of a root's edges with the least key, find the least index.
extern "C" __global__ void least_ids(
    const Pair* pairs, const Id* ids, i64 n, const Key* keys, const u64* best, Id* best_id
) {
    for (i64 k = thread(); k < n; k += threads()) {
        const Pair pair = pairs[k];
        const Id id = ids[k];
        const u64 word = word_of(keys[id], id);
        if (best[pair.u] == word) atomicMin(&best_id[pair.u], id);
        if (best[pair.v] == word) atomicMin(&best_id[pair.v], id);
    }
}

// Join roots across their least edges. These are in the forest. Two roots may choose the same edge;
// longer cycles would contradict the total order.
extern "C" __global__ void hook(
    const Pair* pairs, const Id* ids, i64 n, const Key* keys, const u64* best, const Id* best_id,
    Label* parent, u8* chosen
) {
    for (i64 k = thread(); k < n; k += threads()) {
        const Label u = pairs[k].u, v = pairs[k].v;
        const Id id = ids[k];
        const u64 word = word_of(keys[id], id);
        const bool by_u = best[u] == word && (!WIDE || best_id[u] == id);
        const bool by_v = best[v] == word && (!WIDE || best_id[v] == id);
        if (by_u && by_v) parent[u < v ? v : u] = u < v ? u : v;
        else if (by_u) parent[u] = v;
        else if (by_v) parent[v] = u;
        if (by_u || by_v) chosen[id] = 1;
    }
}

// Make every tree a star, and forget the least edges.
extern "C" __global__ void finish_round(i64 n, Label* parent, u64* best, Id* best_id) {
    for (i64 v = thread(); v < n; v += threads()) {
        to_root(parent, v);
        best[v] = ~0ull;
        if (WIDE) best_id[v] = ~(Id)0;
    }
}
