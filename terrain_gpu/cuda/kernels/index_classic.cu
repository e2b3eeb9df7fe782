// Two classical methods for the distances between the rim cells of tiles, kept for comparison with
// `relax` of index.cu: those of a master's thesis of 2012 (docs/design/origins.md), sections 5.1 and
// 5.4. Both form the same left-to-right sums, so their fixed point has the same bits.
//
// `spread` and `settle` are its algorithms 7 and 8: a cost, an updating cost and a mask for each
// pair of a rim cell and a cell of its tile, a thread for each cell. `compete` is its algorithm 9: a
// thread for each tile runs Dijkstra's algorithm from one rim cell, with a tournament tree over the
// cells. Macros: those of index.cu.
#include "costs.cuh"
#include "steps.cuh"
#include "rim.cuh"
#include "notes.cuh"

constexpr u32 NOBODY = 0xffffffffu;

// The cost of the step from a cell of a tile in direction k; top() if it leaves the tile.
__device__ __forceinline__ dist step(const dist* weights, int cell, int k) {
    int y = cell / TILE + row_step(k), x = cell % TILE + col_step(k);
    if (y < 0 || y >= TILE || x < 0 || x >= TILE) return top();
    return weights[(k + 4) % 8 * CELLS + y * TILE + x];
}

// Lower a distance that other threads lower, too.
__device__ __forceinline__ void lower(dist* target, dist d) {
#if DISTANCE == F64
    dist old = __ldcg(target);
    while (d < old) {
        u64 before = (u64)__double_as_longlong(old);
        u64 found = atomicCAS((u64*)target, before, (u64)__double_as_longlong(d));
        if (found == before) return;
        old = __longlong_as_double((i64)found);
    }
#else
    atomicMin(target, d);
#endif
}

// Set all costs to top(), those of a rim cell from itself to `nothing`, and mask these.
extern "C" __global__ void begin_arrays(
    const u8* absent, i64 pitch, i64 tiles, i64 across, dist nothing, dist* costs, dist* updating,
    u8* mask
) {
    for (i64 n = thread(); n < tiles * RIM * CELLS; n += threads()) {
        i64 tile = n / CELLS / RIM;
        int b = (int)(n / CELLS % RIM), cell = (int)(n % CELLS), row = rim_row(b), col = rim_col(b);
        bool own = cell == row * TILE + col && !absent[place(pitch, across, tile, row, col)];
        costs[n] = updating[n] = own ? nothing : top();
        mask[n] = own;
    }
}

// Algorithm 7: a thread for each cell offers its neighbours, for every rim cell whose mask is set.
extern "C" __global__ void spread(
    i64 tiles, const dist* weights, const dist* costs, dist* updating, u8* mask
) {
    for (i64 n = thread(); n < tiles * CELLS; n += threads()) {
        i64 tile = n / CELLS;
        int cell = (int)(n % CELLS);
        for (int b = 0; b < RIM; b++) {
            i64 first = (tile * RIM + b) * CELLS;
            if (!mask[first + cell]) continue;
            mask[first + cell] = 0;
            dist d = costs[first + cell];
            for (int k = 0; k < 8; k++) {
                dist w = step(weights + tile * 8 * CELLS, cell, k);
                if (!(w < top())) continue;
                int other = cell + row_step(k) * TILE + col_step(k);
                lower(updating + first + other, join(d, w));
            }
        }
    }
}

// Algorithm 8: a thread for each cell takes over what is less, and masks it; `changed` tells.
extern "C" __global__ void settle(i64 tiles, dist* costs, dist* updating, u8* mask, u32* changed) {
    for (i64 n = thread(); n < tiles * CELLS; n += threads()) {
        i64 tile = n / CELLS;
        for (int b = 0; b < RIM; b++) {
            i64 at = (tile * RIM + b) * CELLS + n % CELLS;
            if (costs[at] > updating[at]) {
                costs[at] = updating[at];
                mask[at] = 1;
                *changed = 1;
            }
            updating[at] = costs[at];
        }
    }
}

// Write the distances from rim cell b, of all tiles, to their entries. `pairs` is RIM for the
// distances from all rim cells, and 1 for those from one.
extern "C" __global__ void gather(
    i64 tiles, i64 pairs, int b0, const dist* costs, int symmetric, i64 entries_of_tile,
    dist* entries
) {
    for (i64 n = thread(); n < tiles * pairs * RIM; n += threads()) {
        i64 tile = n / RIM / pairs, from = b0 + n / RIM % pairs, a = n % RIM;
        if (symmetric && a >= from) continue;
        i64 cell = rim_row((int)a) * TILE + rim_col((int)a);
        entries[tile * entries_of_tile + (symmetric ? from * (from - 1) / 2 : from * RIM) + a] =
            costs[n / RIM * CELLS + cell];
    }
}

// The winner of two leaves: the one with the lesser key, of those that play.
__device__ __forceinline__ u32 winner(const dist* distances, u32 one, u32 other) {
    if (one == NOBODY || other == NOBODY) return one == NOBODY ? other : one;
    return distances[other] < distances[one] ? other : one;
}

// Let a leaf play or not, and propagate to the root.
__device__ __forceinline__ void update(u32* tree, const dist* distances, u32 cell, bool plays) {
    u32 node = CELLS + cell;
    tree[node] = plays ? cell : NOBODY;
    for (node /= 2; node; node /= 2)
        tree[node] = winner(distances, tree[2 * node], tree[2 * node + 1]);
}

// Algorithm 9: a thread for each tile, from the rim cell b of all tiles. The tree has its root at 1
// and the cells as leaves; a node holds the cell that wins below.
extern "C" __global__ void compete(
    const u8* absent, i64 pitch, i64 tiles, i64 across, const dist* weights, dist nothing, int b,
    dist* distances, u8* done, u32* tree
) {
    for (i64 tile = thread(); tile < tiles; tile += threads()) {
        dist* far = distances + tile * CELLS;
        u8* last = done + tile * CELLS;
        u32* mine = tree + tile * 2 * CELLS;
        for (int cell = 0; cell < CELLS; cell++) far[cell] = top(), last[cell] = 0;
        for (int node = 0; node < 2 * CELLS; node++) mine[node] = NOBODY;
        int row = rim_row(b), col = rim_col(b);
        if (absent[place(pitch, across, tile, row, col)]) continue;
        far[row * TILE + col] = nothing;
        update(mine, far, row * TILE + col, true);
        while (mine[1] != NOBODY) {
            u32 cell = mine[1];
            last[cell] = 1;
            update(mine, far, cell, false);
            for (int k = 0; k < 8; k++) {
                dist w = step(weights + tile * 8 * CELLS, (int)cell, k);
                if (!(w < top())) continue;
                u32 other = cell + row_step(k) * TILE + col_step(k);
                dist d = join(far[cell], w);
                if (last[other] || !(d < far[other])) continue;
                far[other] = d;
                update(mine, far, other, true);
            }
        }
    }
}
