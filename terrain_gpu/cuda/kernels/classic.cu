// Classical methods of relaxing a padded raster, kept for comparison with `relax` of paths.cu.
//
// A cell whose distance decreased has a flag until it has been propagated to its neighbours. In
// `sweep`, many threads look for flags in one large block of cells; in `play`, a warp takes the
// flagged cells of a small block and runs Dijkstra's algorithm from these. Macros: those of
// costs.cuh; DIAGONAL, CORNERS, REVERSE, HAS_FRICTION as for paths.cu.
#include "costs.cuh"
#include "steps.cuh"
#include "notes.cuh"

#define SIDE 32 // of the blocks of `play`
#define PLAYERS (SIDE * SIDE)
#define NOBODY 0xffffu

struct Grid {
    const CELL* heights;
    const FRICTION* frictions;
    const f64* lengths; // of the steps E, diagonal, S from each padded row; three arrays
    i64 rows, pitch;    // padded rows, cells per padded row
    dist* distances;
    u32* flags;         // a bit per cell
    dist* keys;         // per block, the least distance that entered it since its last visit
    i64 side, across;   // side of a block, blocks per row
    dist limit;         // greater distances are not propagated
};

// Rows and columns count from the raster's first; the ring begins at -1.
__device__ __forceinline__ i64 place(i64 pitch, i64 row, i64 col) {
    return (row + 1) * pitch + col + 1;
}

__device__ __forceinline__ i64 block_of(i64 side, i64 across, i64 row, i64 col) {
    return row / side * across + col / side;
}

// The word and the bit of a cell's flag; the first cell of a word is in a column divisible by 32.
__device__ __forceinline__ u32* word_of(u32* flags, i64 at) { return flags + (at + 31) / 32; }
__device__ __forceinline__ u32 bit_of(i64 at) { return 1u << ((at + 31) & 31); }

// Lower a distance; returns whether it decreased. An absent one never does.
__device__ __forceinline__ bool lower(dist* target, dist d) {
    dist old = __ldcg(target);
#if DISTANCE == F64
    while (d < old) {
        u64 before = (u64)__double_as_longlong(old);
        u64 found = atomicCAS((u64*)target, before, (u64)__double_as_longlong(d));
        if (found == before) return true;
        old = __longlong_as_double((i64)found);
    }
    return false;
#else
    return !is_absent(old) && d < old && d < atomicMin(target, d);
#endif
}

// The distance of the neighbour in direction k by way of this cell, or top().
__device__ __forceinline__ dist by_way_of(
    const Grid& g, const Parameters& p, i64 row, i64 col, int k, dist here
) {
    int dy = row_step(k), dx = col_step(k);
    i64 at = place(g.pitch, row, col), other = at + dy * g.pitch + dx;
#if !DIAGONAL
    if (dx && dy) return top();
#endif
#if !CORNERS
    bool beside = is_absent(g.distances[at + dx]) && is_absent(g.distances[at + dy * g.pitch]);
    if (dx && dy && beside) return top();
#endif
    f64 length = 0;
#if HAS_LENGTH
    length = g.lengths[(dx && dy ? 1 : (dy ? 2 : 0)) * g.rows + (dy < 0 ? row : row + 1)];
#endif
#if REVERSE
    i64 from = other, to = at;
#else
    i64 from = at, to = other;
#endif
    value a = (value)g.heights[from], b = (value)g.heights[to];
#if HAS_FRICTION
    f64 fa = (f64)g.frictions[from], fb = (f64)g.frictions[to];
#else
    f64 fa = (f64)a, fb = (f64)b;
#endif
    return join(here, edge(p, a, b, fa, fb, length));
}

// Lower the distance of a cell, set its flag, and lower the key of its block if that is not `own`.
// Returns the block, or -1 if the distance is not less.
__device__ __forceinline__ i64 offer(const Grid& g, i64 row, i64 col, dist d, i64 own) {
    i64 at = place(g.pitch, row, col);
    if (!lower(g.distances + at, d)) return -1;
    __threadfence(); // a thread that sees the flag must see the distance
    atomicOr(word_of(g.flags, at), bit_of(at));
    i64 block = block_of(g.side, g.across, row, col);
    if (block != own) lower(g.keys + block, d);
    return block;
}

// Flag the sources, the only cells that have distances.
extern "C" __global__ void begin(
    i64 height, i64 width, i64 pitch, const dist* distances, u32* flags, dist* keys, i64 side,
    i64 across
) {
    for (i64 k = thread(); k < height * width; k += threads()) {
        i64 row = k / width, col = k % width, at = place(pitch, row, col);
        dist d = distances[at];
        if (!(d < top())) continue;
        atomicOr(word_of(flags, at), bit_of(at));
        lower(keys + block_of(side, across, row, col), d);
    }
}

// Relax once from the flagged cells of a block; a thread per cell. `last` becomes `number` if flags
// were set in the block: it needs another sweep.
extern "C" __global__ void sweep(
    const CELL* heights, const FRICTION* frictions, const f64* lengths, i64 rows, i64 pitch,
    dist* distances, u32* flags, dist* keys, i64 side, i64 across, const f64* p, dist limit,
    i64 first_row, i64 first_col, i64 height, i64 width, i64 number, i64* last
) {
    const Grid g = {heights, frictions, lengths, rows,   pitch, distances,
                    flags,   keys,      side,    across, limit};
    const Parameters parameters = parameters_of(p);
    const i64 own = block_of(side, across, first_row, first_col);
    i64 row = (i64)blockIdx.y * blockDim.y + threadIdx.y;
    i64 col = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= height || col >= width) return;
    row += first_row;
    col += first_col;
    const i64 at = place(pitch, row, col);
    u32* word = word_of(flags, at);
    if (!(__ldcg(word) & bit_of(at))) return;
    atomicAnd(word, ~bit_of(at));
    __threadfence(); // a thread that lowers the distance from here on sets the flag again
    const dist d = __ldcg(distances + at);
    if (d > limit) return;
#pragma unroll
    for (int k = 0; k < 8; k++) {
        dist by = by_way_of(g, parameters, row, col, k, d);
        if (offer(g, row + row_step(k), col + col_step(k), by, own) == own) *last = number;
    }
}

// The winner of two players: the one with the lesser distance.
__device__ __forceinline__ u32 winner(const dist* cells, u32 one, u32 other) {
    if (one == NOBODY || other == NOBODY) return one == NOBODY ? other : one;
    return cells[other] < cells[one] ? other : one;
}

// Dijkstra's algorithm from the flagged cells, in each block of a list; a warp per block.
//
// The tournament tree has its root at 1, the children of node k at 2 k and 2 k + 1, and the cells
// as leaves; a node holds the winner of its subtree.
extern "C" __global__ void __launch_bounds__(32) play(
    const CELL* heights, const FRICTION* frictions, const f64* lengths, i64 rows, i64 pitch,
    dist* distances, u32* flags, dist* keys, i64 side, i64 across, const f64* p, dist limit,
    const i64* blocks
) {
    __shared__ dist cells[PLAYERS];
    __shared__ u16 tree[2 * PLAYERS];
    const Grid g = {heights, frictions, lengths, rows,   pitch, distances,
                    flags,   keys,      side,    across, limit};
    const Parameters parameters = parameters_of(p);
    const int lane = threadIdx.x;
    const i64 own = blocks[blockIdx.x];
    const i64 first_row = own / across * SIDE, first_col = own % across * SIDE;
    // Lane k takes the flags of row k.
    u32 mine = atomicExch(word_of(flags, place(pitch, first_row + lane, first_col)), 0u);
    __threadfence(); // a thread that lowers a distance from here on sets its flag again
    for (int y = 0; y < SIDE; y++) {
        u32 flagged = __shfl_sync(0xffffffffu, mine, y);
        int cell = y * SIDE + lane;
        cells[cell] = __ldcg(distances + place(pitch, first_row + y, first_col + lane));
        bool plays = (flagged >> lane & 1) && !(cells[cell] > limit);
        tree[PLAYERS + cell] = plays ? cell : NOBODY;
    }
    __syncwarp();
    for (int level = PLAYERS / 2; level; level /= 2) {
        for (int node = level + lane; node < 2 * level; node += 32)
            tree[node] = winner(cells, tree[2 * node], tree[2 * node + 1]);
        __syncwarp();
    }
    while (tree[1] != NOBODY) {
        // Lanes 0 to 7 relax one neighbour each, which enters the tree or moves up in it; lane 8
        // removes the first.
        const int first = tree[1], y = first / SIDE, x = first % SIDE;
        const dist d = cells[first];
        __syncwarp();
        int node = 0;
        if (lane < 8) {
            const int other_y = y + row_step(lane), other_x = x + col_step(lane);
            dist by = by_way_of(g, parameters, first_row + y, first_col + x, lane, d);
            if (other_y < 0 || other_y >= SIDE || other_x < 0 || other_x >= SIDE) {
                offer(g, first_row + other_y, first_col + other_x, by, own);
            } else {
                int other = other_y * SIDE + other_x;
                if (!is_absent(cells[other]) && by < cells[other]) {
                    cells[other] = by;
                    if (!(by > limit)) {
                        node = PLAYERS + other;
                        tree[node] = other;
                    }
                }
            }
        } else if (lane == 8) {
            node = PLAYERS + first;
            tree[node] = NOBODY;
        }
        __syncwarp();
        for (int level = PLAYERS / 2; level; level /= 2) {
            node /= 2;
            if (node) tree[node] = winner(cells, tree[2 * node], tree[2 * node + 1]);
            __syncwarp();
        }
    }
    // Other warps may have lowered distances since; those cells have flags again.
    for (int y = 0; y < SIDE; y++)
        lower(distances + place(pitch, first_row + y, first_col + lane), cells[y * SIDE + lane]);
}

// Find out whether any distance exceeds the guard of its type.
extern "C" __global__ void beyond(const dist* distances, i64 cells, dist guard, u32* found) {
    for (i64 k = thread(); k < cells; k += threads())
        if (distances[k] > guard && distances[k] < top()) *found = 1;
}
