// Connected components of a list of edges, and of a mask. Macros: EDGE, the type of vertices in
// edges, and LABEL, that of labels: int or long long. Parents only decrease, except with "sv" and
// "soman", so a root is the least vertex of its tree. A thread may read a stale parent: that is harmless,
// because every parent a vertex ever had is in its component.
typedef unsigned char u8;
typedef unsigned long long u64;
typedef long long i64;
typedef EDGE Edge;
typedef LABEL Label;

struct __align__(2 * sizeof(Edge)) Ends { Edge u, v; };
struct __align__(2 * sizeof(Label)) Pair { Label u, v; };

__device__ __forceinline__ i64 thread() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ __forceinline__ i64 threads() { return (i64)gridDim.x * blockDim.x; }

#include "append.cuh"

// -- Rem's union-find ------------------------------------------------------------------------------

#include "rem.cuh"

// Join the ends of all edges, except edges with an end below `low`: these are the CPU's.
extern "C" __global__ void rem(const Ends* edges, i64 m, i64 low, Label* parent) {
    for (i64 e = thread(); e < m; e += threads()) {
        const Ends ends = edges[e];
        if (ends.u >= low && ends.v >= low) join(parent, (Label)ends.u, (Label)ends.v);
    }
}

// Make every tree a star.
extern "C" __global__ void shortcut(i64 n, Label* parent) {
    for (i64 v = thread(); v < n; v += threads()) to_root(parent, v);
}

// -- graft, shortcut, update -----------------------------------------------------------------------

// Attach each root to the least smaller label across an edge; if `up`, to the greatest larger one.
extern "C" __global__ void graft(const Ends* edges, i64 m, int up, Label* parent, int* again) {
    for (i64 e = thread(); e < m; e += threads()) {
        const Ends ends = edges[e];
        const Label u = look(parent + ends.u), v = look(parent + ends.v);
        const Label low = u < v ? u : v, high = u < v ? v : u;
        const Label root = up ? low : high;
        if (low == high || look(parent + root) != root) continue;
        if (up) atomicMax(parent + low, high);
        else atomicMin(parent + high, low);
        if (!*(volatile int*)again) *again = 1;
    }
}

// Append the edges `first` to `stop` of the permutation by `step`, between roots, without loops.
extern "C" __global__ void update(
    const Ends* edges, i64 m, i64 step, i64 first, i64 stop, const Label* parent, Pair* out,
    u64* count
) {
    for (i64 base = first + thread() - threadIdx.x; base < stop; base += threads()) {
        const i64 k = base + threadIdx.x;
        Pair pair = {0, 0};
        if (k < stop) {
            const Ends ends = edges[step == 1 ? k : k * step % m];
            const Label u = parent[ends.u], v = parent[ends.v];
            pair.u = u < v ? u : v;
            pair.v = u < v ? v : u;
        }
        const i64 at = append(pair.u != pair.v, count);
        if (pair.u != pair.v) out[at] = pair;
    }
}

// -- Shiloach and Vishkin --------------------------------------------------------------------------
// `before` and `now` are the parents at the end of the last round and in this one; `stamp` holds
// the last round in which a tree changed.

extern "C" __global__ void sv0(i64 n, int* stamp) {
    for (i64 v = thread(); v < n; v += threads()) stamp[v] = 0;
}

extern "C" __global__ void sv1(i64 n, const Label* before, Label* now, int* stamp, int turn) {
    for (i64 v = thread(); v < n; v += threads()) {
        const Label up = before[v], next = before[up];
        now[v] = next;
        if (next != up) stamp[next] = turn;
    }
}

extern "C" __global__ void sv2(
    const Ends* edges, i64 m, const Label* before, Label* now, int* stamp, int turn
) {
    for (i64 e = thread(); e < m; e += threads()) {
        const Ends ends = edges[e];
        for (int k = 0; k < 2; k++) {
            const Edge u = k ? ends.v : ends.u, v = k ? ends.u : ends.v;
            const Label root = look(now + u);
            if (root != before[u]) continue;
            const Label other = look(now + v);
            if (other >= root) continue;
            now[root] = other;
            stamp[other] = turn;
        }
    }
}

extern "C" __global__ void sv3(const Ends* edges, i64 m, Label* now, const int* stamp, int turn) {
    for (i64 e = thread(); e < m; e += threads()) {
        const Ends ends = edges[e];
        for (int k = 0; k < 2; k++) {
            const Label root = look(now + (k ? ends.v : ends.u));
            const Label other = look(now + (k ? ends.u : ends.v));
            if (root != other && look(now + root) == root && stamp[root] < turn) now[root] = other;
        }
    }
}

extern "C" __global__ void sv4(i64 n, const Label* now, Label* before) {
    for (i64 v = thread(); v < n; v += threads()) before[v] = now[now[v]];
}

extern "C" __global__ void sv5(i64 n, const int* stamp, int turn, int* again) {
    for (i64 v = thread(); v < n; v += threads())
        if (stamp[v] == turn && !*(volatile int*)again) *again = 1;
}

// -- the end ---------------------------------------------------------------------------------------

extern "C" __global__ void least_vertices(i64 n, const Label* parent, Label* least) {
    for (i64 v = thread(); v < n; v += threads()) {
        Label* at = least + parent[v];
        if (look(at) > v) atomicMin(at, (Label)v);
    }
}

// Write labels from stars; `least`, unless null, maps roots to the least vertices.
extern "C" __global__ void finish(i64 n, const Label* parent, const Label* least, i64* labels) {
    for (i64 v = thread(); v < n; v += threads())
        labels[v] = least ? least[parent[v]] : parent[v];
}

// -- hybrid ----------------------------------------------------------------------------------------

// Vertices below `low` are the CPU's, `width` of them per core. Append edges inside one core's part
// to `inner` and edges between parts to `cross`; only count them if these are null.
extern "C" __global__ void split(
    const Ends* edges, i64 m, i64 low, i64 width, Pair* inner, Pair* cross, u64* counts
) {
    for (i64 base = thread() - threadIdx.x; base < m; base += threads()) {
        const i64 e = base + threadIdx.x;
        bool has[2] = {false, false};
        Pair pair = {0, 0};
        if (e < m) {
            const Ends ends = edges[e];
            pair.u = (Label)ends.u;
            pair.v = (Label)ends.v;
            if (ends.u < low || ends.v < low) {
                const bool same = ends.u < low && ends.v < low && ends.u / width == ends.v / width;
                has[0] = same;
                has[1] = !same;
            }
        }
        const i64 in = append(has[0], counts), across = append(has[1], counts + 1);
        if (has[0] && inner) inner[in] = pair;
        if (has[1] && cross) cross[across] = pair;
    }
}

// -- masks -----------------------------------------------------------------------------------------
// A warp takes 32 cells of a row at a time. Cells outside the mask have no parent.

struct Chunk {
    i64 row, col, cell;
    bool inside;    // the mask
    unsigned bits;  // `inside` of all 32 cells
};

__device__ __forceinline__ Chunk chunk(i64 k, i64 across, i64 cols, const u8* mask) {
    Chunk c;
    const int lane = threadIdx.x & 31;
    c.row = k / across;
    c.col = k % across * 32 + lane;
    c.cell = c.row * cols + c.col;
    c.inside = c.col < cols && mask[c.cell];
    c.bits = __ballot_sync(~0u, c.inside);
    return c;
}

// Make the first cell of a run, within the warp's 32 cells, the parent of the others.
extern "C" __global__ void start_runs(i64 rows, i64 cols, const u8* mask, Label* parent) {
    const i64 across = (cols + 31) / 32;
    const int lane = threadIdx.x & 31;
    for (i64 k = thread() / 32; k < rows * across; k += threads() / 32) {
        const Chunk c = chunk(k, across, cols, mask);
        if (!c.inside) continue;
        const unsigned gaps = ~c.bits & ((1u << lane) - 1);
        parent[c.cell] = (Label)(c.cell - (gaps ? lane - (32 - __clz(gaps)) : lane));
    }
}

// Join cells to their neighbours, except where others imply it: most neighbours above are also
// neighbours of the cell to the left, which is in the same run.
extern "C" __global__ void join_cells(
    i64 rows, i64 cols, int diagonal, const u8* mask, Label* parent
) {
    const i64 across = (cols + 31) / 32;
    const int lane = threadIdx.x & 31;
    for (i64 k = thread() / 32; k < rows * across; k += threads() / 32) {
        const Chunk c = chunk(k, across, cols, mask);
        if (!c.inside) continue;
        const Label cell = (Label)c.cell, up = (Label)(c.cell - cols);
        const bool before = c.col > 0 && mask[c.cell - 1];
        if (before && lane == 0) join(parent, cell, cell - 1);
        if (c.row == 0) continue;
        const bool left = c.col > 0 && mask[up - 1], middle = mask[up];
        if (!diagonal) {
            if (middle && !(before && left)) join(parent, cell, up);
        } else if (middle) {
            if (!before) join(parent, cell, up);
        } else {
            if (left && !before) join(parent, cell, up - 1);
            if (c.col + 1 < cols && mask[up + 1]) join(parent, cell, up + 1);
        }
    }
}

extern "C" __global__ void finish_cells(i64 n, const u8* mask, Label* parent, i64* labels) {
    for (i64 v = thread(); v < n; v += threads()) labels[v] = mask[v] ? to_root(parent, v) : -1;
}
