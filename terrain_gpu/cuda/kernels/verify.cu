// Verify that a mask of edges is the minimum spanning forest of a region: Boruvka's rounds over all
// edges of the grid, the whole region as one graph, cells row by row. An edge has the id
// 4 * lower cell + direction (E, SW, S, SE), and edges are ordered by weight and id, so the forest
// is unique. Cells on open sides have neighbours in other regions: their components never pick, so
// every pick is an edge of the forest, and no two of these cells are ever joined. Rounds in which
// they pick then find the candidates, the spanning forest of the edges left between them. The mask
// is right inside the region if and only if it holds every edge picked, and otherwise only
// candidates; which of these, other regions tell.
// Deliberately simple, and shares no code with the kernels that compute forests. Macros: CELL, the
// type of cells; ABSDIFF, whether the weight is |dz| (1) or the higher cell (0); SLOPES, whether of
// edges of one weight the steeper comes first; VERTEX, the unsigned type of a cell's number.
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
typedef CELL Cell;
typedef VERTEX Vertex;
constexpr bool FLOAT = (Cell)0.5 != (Cell)0, DOUBLE = FLOAT && sizeof(Cell) == 8;
constexpr int EXPONENTS = DOUBLE ? 2048 : FLOAT ? 256 : 1;
constexpr Vertex ABSENT = ~(Vertex)0;
constexpr u64 NONE = ~0ull, OPEN = NONE - 1;  // the best edge of a root: none yet; never one
constexpr int HOPS = 16;  // at most, per pass, towards a root
constexpr i64 SWATH = 1024;

__device__ __forceinline__ i64 thread() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ __forceinline__ i64 threads() { return (i64)gridDim.x * blockDim.x; }

struct Place { i64 row, col; };

// Position of the k-th cell when the raster is traversed in swaths of columns: the cells and
// neighbours visited at one time then form about a square and stay in the cache.
__device__ __forceinline__ Place place(i64 k, i64 rows, i64 cols) {
    const Vertex wide = cols < SWATH ? cols : SWATH;
    const Vertex left = (Vertex)k / ((Vertex)rows * wide) * wide;
    const Vertex rest = (Vertex)k - (Vertex)rows * left;
    const Vertex width = (Vertex)cols - left < wide ? (Vertex)cols - left : wide;
    return {(i64)(rest / width), (i64)(left + rest % width)};
}

#include "add_up.cuh"

constexpr int UP = 1, DOWN = 2, LEFT = 4, RIGHT = 8;  // open sides

__device__ __forceinline__ bool is_open(i64 row, i64 col, i64 rows, i64 cols, int sides) {
    return (sides & UP && row == 0) || (sides & DOWN && row == rows - 1) ||
           (sides & LEFT && col == 0) || (sides & RIGHT && col == cols - 1);
}

// -- weights ---------------------------------------------------------------------------------------

__device__ __forceinline__ u32 bits_of(float z) { return __float_as_uint(z); }
__device__ __forceinline__ u64 bits_of(double z) { return (u64)__double_as_longlong(z); }
template <typename T> __device__ __forceinline__ u64 bits_of(T z) { return (u64)z; }

// Map numbers to unsigned ones in the same order.
__device__ __forceinline__ u64 ordered(float z) {
    const u32 bits = bits_of(z + 0.0f);  // turns -0 into +0
    return bits >> 31 ? ~bits : bits | 1u << 31;
}
__device__ __forceinline__ u64 ordered(double z) {
    const u64 bits = bits_of(z + 0.0);
    return bits >> 63 ? ~bits : bits | 1ull << 63;
}
template <typename T> __device__ __forceinline__ u64 ordered(T z) {
    return (u64)z + ((T)-1 < (T)1 ? 1ull << (8 * sizeof(T) - 1) : 0);  // the least is 0
}

// The weight itself, for floats.
__device__ __forceinline__ Cell weight(Cell a, Cell b) {
    if (ABSDIFF) return a < b ? b - a : a - b;
    return a < b ? b : a;
}

// An unsigned number in the order of weights.
__device__ __forceinline__ u64 key(Cell a, Cell b) {
    if constexpr (FLOAT) {
        return ordered(weight(a, b));
    } else {
        const u64 x = ordered(a), y = ordered(b);
        const u64 low = x < y ? x : y, high = x < y ? y : x;
        return ABSDIFF ? high - low : high;
    }
}

// The same, with the slope: the difference of heights times the reciprocal of the length.
__device__ __forceinline__ u64 key(
    Cell a, Cell b, const double* per_length, i64 rows, i64 row, int direction
) {
    if constexpr (SLOPES) {
        const float slope = (float)(fabs((double)a - (double)b) * per_length[direction * rows + row]);
        return key(a, b) << 32 | (0x7FFFFFFFu - bits_of(slope));
    } else {
        return key(a, b);
    }
}

// Difference between the numbers of an edge's upper and lower cell.
__device__ __forceinline__ i64 step(int direction, i64 cols) {
    return direction == 0 ? 1 : cols + direction - 2;
}

// -- the raster ------------------------------------------------------------------------------------

extern "C" __global__ void start(
    i64 rows, i64 cols, int sides, const Cell* cells, Cell nodata, int has_nodata, Vertex* parent,
    u64* best
) {
    for (i64 v = thread(); v < rows * cols; v += threads()) {
        const Cell z = cells[v];
        // Neither NaN nor infinite.
        const bool here = z - z == 0 && !(has_nodata && z == nodata);
        parent[v] = here ? (Vertex)v : ABSENT;
        best[v] = sides && is_open(v / cols, v % cols, rows, cols, sides) ? OPEN : NONE;
    }
}

// For cells [first, last), count those with a value, the edges of the grid, the edges of the mask,
// and its bits that are not edges of the grid. Edges to other regions are not counted. Sum the weights of the mask's edges exactly: integers
// as a low and a high word; floats as mantissas, two words per exponent. A word cannot overflow for
// 2^28 cells.
extern "C" __global__ void survey(
    i64 first, i64 last, i64 rows, i64 cols, int diagonal, int sides, const Cell* cells,
    const u8* mask, const Vertex* parent, u64* counts, u64* sums
) {
    __shared__ u64 words[2 * EXPONENTS];
    for (int k = threadIdx.x; k < 2 * EXPONENTS; k += blockDim.x) words[k] = 0;
    __syncthreads();
    u64 vertices = 0, grid = 0, edges = 0, wrong = 0;
    // Sums of a run of weights with the same exponent.
    int run = 0;
    i64 low = 0, high = 0;
    auto flush = [&]() {
        if (low) atomicAdd(&words[2 * run], (u64)low);
        if (high) atomicAdd(&words[2 * run + 1], (u64)high);
        low = high = 0;
    };
    auto add = [&](Cell a, Cell b) {
        if constexpr (!FLOAT) {
            low += (i64)(key(a, b) & 0xFFFFFFFFu);
            high += (i64)(key(a, b) >> 32);
        } else {
            constexpr int POINT = DOUBLE ? 52 : 23;
            const u64 bits = bits_of(weight(a, b));
            const int exponent = (int)(bits >> POINT) & (EXPONENTS - 1);
            const u64 mantissa = (bits & ((1ull << POINT) - 1)) | (u64)(exponent > 0) << POINT;
            const i64 sign = bits >> (8 * sizeof(Cell) - 1) ? -1 : 1;
            if (exponent != run) flush();
            run = exponent;
            low += sign * (i64)(mantissa & 0xFFFFFFFFu);
            high += sign * (i64)(mantissa >> 32);
        }
    };
    for (i64 v = first + thread(); v < last; v += threads()) {
        const i64 row = v / cols, col = v % cols;
        const bool here = parent[v] != ABSENT;
        const int bits = mask[v];
        vertices += here;
        wrong += bits > 15;
        for (int d = 0; d < 4; d++) {
            const bool inside = d == 0 ? col + 1 < cols
                                       : row + 1 < rows && (d != 1 || col > 0) &&
                                             (d != 3 || col + 1 < cols);
            const i64 other = v + step(d, cols);
            const bool edge = here && inside && (diagonal || d % 2 == 0) && parent[other] != ABSENT;
            const bool chosen = bits >> d & 1;
            grid += edge;
            const bool below = d == 0 || row + 1 < rows || sides & DOWN;
            const bool beside = d == 2 || (d == 1 ? col > 0 || sides & LEFT
                                                  : col + 1 < cols || sides & RIGHT);
            if (here && !inside && below && beside && (diagonal || d % 2 == 0)) continue;
            edges += chosen;
            wrong += chosen && !edge;
            if (chosen && edge) add(cells[v], cells[other]);
        }
    }
    flush();
    add_up(vertices, counts);
    add_up(edges, counts + 1);
    add_up(grid, counts + 2);
    add_up(wrong, counts + 3);
    for (int k = threadIdx.x; k < 2 * EXPONENTS; k += blockDim.x)
        if (words[k]) atomicAdd(&sums[k], words[k]);
}

// -- a round ---------------------------------------------------------------------------------------

// Find the least edge out of every component, stored at its root. Each cell first finds its own
// least edge, without atomics.
extern "C" __global__ void least_edges(
    i64 rows, i64 cols, int diagonal, const Cell* cells, const double* per_length,
    const Vertex* parent, u64* best
) {
    for (i64 k = thread(); k < rows * cols; k += threads()) {
        const auto at = place(k, rows, cols);
        const i64 row = at.row, col = at.col;
        const i64 v = row * cols + col;
        const Vertex own = parent[v];
        if (own == ABSENT) continue;
        u64 weight = 0, edge = NONE;
        auto look = [&](i64 other, i64 upper, u64 id) {
            if (parent[other] == own || parent[other] == ABSENT) return;
            const u64 k = key(cells[v], cells[other], per_length, rows, upper, (int)(id & 3));
            if (edge != NONE && (k > weight || (k == weight && id > edge))) return;
            weight = k;
            edge = id;
        };
        const bool up = row > 0, down = row + 1 < rows, left = col > 0, right = col + 1 < cols;
        for (int d = 0; d < 4; d++) {
            if (d % 2 && !diagonal) continue;
            const bool forth = d == 0 ? right : down && (d != 1 || left) && (d != 3 || right);
            const bool back = d == 0 ? left : up && (d != 1 || right) && (d != 3 || left);
            const i64 by = step(d, cols);
            if (back) look(v - by, row - (d > 0), 4 * (u64)(v - by) + d);
            if (forth) look(v + by, row, 4 * (u64)v + d);
        }
        if (edge == NONE) continue;
        u64 seen = *(volatile u64*)&best[own];
        for (;;) {
            if (seen == OPEN) break;
            if (seen != NONE) {
                const i64 cell = (i64)(seen >> 2);
                const int d = (int)(seen & 3);
                const Cell there = cells[cell + step(d, cols)];
                const i64 upper = SLOPES ? cell / cols : 0;
                const u64 k = key(cells[cell], there, per_length, rows, upper, d);
                if (k < weight || (k == weight && seen <= edge)) break;
            }
            const u64 now = atomicCAS(&best[own], seen, edge);
            if (now == seen) break;
            seen = now;
        }
    }
}

// Replace the edge that a root picked by the root it leads to. Count picks that the mask lacks; or
// list all picks, if there is a list. Two roots may pick the same edge.
extern "C" __global__ void aim(
    i64 n, i64 cols, const u8* mask, const Vertex* parent, u64* best, u64* list, u64* counts
) {
    u64 lack = 0;
    for (i64 v = thread(); v < n; v += threads()) {
        if (parent[v] != (Vertex)v || best[v] >= OPEN) continue;
        const u64 edge = best[v];
        const i64 cell = (i64)(edge >> 2), other = cell + step((int)(edge & 3), cols);
        if (list) list[atomicAdd(&counts[0], 1ull)] = edge;
        else lack += !(mask[cell] >> (edge & 3) & 1);
        best[v] = parent[parent[cell] == (Vertex)v ? other : cell];
    }
    add_up(lack, counts);
}

// Attach roots to those they lead to. Two that lead to each other picked the same edge: the lesser
// one remains a root.
extern "C" __global__ void hook(i64 n, Vertex* parent, const u64* best, u64* picked) {
    u64 picks = 0;
    for (i64 v = thread(); v < n; v += threads()) {
        if (parent[v] != (Vertex)v || best[v] >= OPEN) continue;
        const u64 to = best[v];
        if (best[to] == (u64)v && (u64)v < to) continue;
        parent[v] = (Vertex)to;
        picks++;
    }
    add_up(picks, picked);
}

// Move cells' parents towards their roots; repeat until none is unfinished. Each pass divides the
// depth by HOPS, or by more if other threads have already updated parents.
extern "C" __global__ void flatten(
    i64 rows, i64 cols, Vertex* parent, u64* best, u64* unfinished
) {
    for (i64 k = thread(); k < rows * cols; k += threads()) {
        const auto [row, col] = place(k, rows, cols);
        const i64 v = row * cols + col;
        const Vertex from = parent[v];
        if (from == ABSENT) continue;
        if (from == (Vertex)v) {
            if (best[v] != OPEN) best[v] = NONE;
            continue;
        }
        // From the L1 cache, possibly stale: all cells of a large component read the same root.
        Vertex root = from, next = __ldca(&parent[root]);
        for (int hop = 0; hop < HOPS && next != root; hop++) {
            root = next;
            next = __ldca(&parent[root]);
        }
        if (root != from) parent[v] = root;
        if (next != root) *unfinished = 1;
    }
}

// -- candidates ------------------------------------------------------------------------------------

// Let open cells pick from now on. They are the roots that are left; all other cells remember which
// of them they belong to.
extern "C" __global__ void let_pick(i64 n, const Vertex* parent, u64* best) {
    for (i64 v = thread(); v < n; v += threads())
        if (parent[v] != ABSENT) best[v] = parent[v] == (Vertex)v ? NONE : (u64)parent[v];
}

// For every candidate, its weight, the open cells that its ends belong to, and whether the mask
// has it.
extern "C" __global__ void describe(
    i64 count, const u64* list, i64 rows, i64 cols, int sides, const Cell* cells,
    const double* per_length, const u8* mask, const u64* best, u64* keys, u64* us, u64* vs, u8* tree
) {
    for (i64 k = thread(); k < count; k += threads()) {
        const i64 cell = (i64)(list[k] >> 2);
        const int d = (int)(list[k] & 3);
        const i64 other = cell + step(d, cols);
        keys[k] = key(cells[cell], cells[other], per_length, rows, cell / cols, d);
        us[k] = is_open(cell / cols, cell % cols, rows, cols, sides) ? (u64)cell : best[cell];
        vs[k] = is_open(other / cols, other % cols, rows, cols, sides) ? (u64)other : best[other];
        tree[k] = mask[cell] >> d & 1;
    }
}
