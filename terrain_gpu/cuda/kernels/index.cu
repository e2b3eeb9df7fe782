// The distance index: distances between the rim cells of every tile. See paths/distance_index/.
//
// A warp relaxes a tile from 32 rim cells at once, one per lane. All lanes take the same steps in
// the same order, so they share the load of a step's cost; lanes never read each other's distances.
// Distances are left-to-right sums, whose unique fixed point is the CPU's; merging smaller matrices
// would add in another order. Macros: TILE (16, 32, 64 or 128), those of costs.cuh, DIAGONAL,
// CORNERS, REVERSE, HAS_FRICTION.
#include "costs.cuh"
#include "steps.cuh"
#include "rim.cuh"

constexpr int LANES = 32;
constexpr int GROUPS = (RIM + LANES - 1) / LANES; // of rim cells, one per warp
constexpr int AHEAD = 16; // cells loaded ahead
constexpr u32 ALL = 0xffffffffu;
// A row of distances; later LANES + 1 columns, to transpose them.
constexpr int LINES = TILE > LANES ? TILE * LANES : LANES * (LANES + 1);

// A set of rows of a tile, a bit for each.
struct Rows {
    static constexpr int WORDS = (TILE + 63) / 64;
    u64 words[WORDS];

    __device__ __forceinline__ void add(int y) {
        if (y >= 0 && y < TILE)
            for (int k = 0; k < WORDS; k++) words[k] |= y / 64 == k ? 1ull << y % 64 : 0;
    }
    __device__ __forceinline__ void remove(int y) {
        for (int k = 0; k < WORDS; k++) words[k] &= ~(y / 64 == k ? 1ull << y % 64 : 0);
    }
    __device__ __forceinline__ bool has(int y) const {
        u64 found = 0;
        for (int k = 0; k < WORDS; k++) found |= y / 64 == k ? words[k] >> y % 64 & 1 : 0;
        return found;
    }
    // The first and the last of them; -1 for none.
    __device__ __forceinline__ int first() const {
        for (int k = 0; k < WORDS; k++)
            if (words[k]) return 64 * k + __ffsll(words[k]) - 1;
        return -1;
    }
    __device__ __forceinline__ int last() const {
        for (int k = WORDS - 1; k >= 0; k--)
            if (words[k]) return 64 * k + 63 - __clzll(words[k]);
        return -1;
    }
};

// Compute the costs of the steps into every cell, by tile, direction and cell; top() for no step.
// `lengths` are those of the steps E, SW, S, SE from each padded row.
extern "C" __global__ void weigh(
    const CELL* heights, const FRICTION* frictions, const u8* absent, const f64* lengths, i64 rows,
    i64 pitch, i64 tiles, i64 across, const f64* p, dist* weights
) {
    const Parameters parameters = parameters_of(p);
    i64 first = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    for (i64 n = first; n < tiles * CELLS; n += (i64)gridDim.x * blockDim.x) {
        i64 tile = n / CELLS, cell = n % CELLS;
        i64 here = place(pitch, across, tile, cell / TILE, cell % TILE), row = here / pitch;
        for (int k = 0; k < 8; k++) {
            int dy = row_step(k), dx = col_step(k);
            i64 there = here + dy * pitch + dx;
            dist w = top();
            bool shut = absent[here];
            if (dy && dx)
                shut |= !DIAGONAL || (!CORNERS && absent[here + dx] && absent[here + dy * pitch]);
            if (!shut) {
                i64 from = REVERSE ? here : there, to = REVERSE ? there : here;
                value a = (value)heights[from], b = (value)heights[to];
#if HAS_FRICTION
                f64 fa = (f64)frictions[from], fb = (f64)frictions[to];
#else
                f64 fa = (f64)a, fb = (f64)b;
#endif
                w = edge(
                    parameters, a, b, fa, fb, lengths[edge_of(k) * rows + row + (dy < 0 ? -1 : 0)]
                );
                w = w <= top() ? w : top(); // also NaN: an infinite cost times friction 0
            }
            weights[(tile * 8 + k) * CELLS + cell] = w;
        }
    }
}

// Relax row y from the row above (DOWN) or below, which is in `line`, then rightwards and leftwards
// along itself; afterwards `line` holds row y. Returns whether it changed in any lane. If the
// rightward pass changed nothing, the leftward pass is skipped, except in rows of sources (`scan`).
template <bool DOWN>
__device__ __forceinline__ bool relax_row(
    dist* distances, dist* line, const dist* __restrict__ weights, int y, bool scan
) {
    const dist* straight = weights + (DOWN ? 6 : 2) * CELLS + y * TILE;
    const dist* right = weights + (DOWN ? 7 : 1) * CELLS + y * TILE;
    const dist* left = weights + (DOWN ? 5 : 3) * CELLS + y * TILE;
    const dist *east = weights + y * TILE, *west = weights + 4 * CELLS + y * TILE;
    dist* row = distances + y * TILE * LANES;
    bool changed = false;
    dist before = top(), beside = line[0], last = top();
    for (int start = 0; start < TILE; start += AHEAD) {
        dist old[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) old[k] = row[(start + k) * LANES];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            int x = start + k;
            dist next = x + 1 < TILE ? line[(x + 1) * LANES] : top();
            dist best = lesser(old[k], join(beside, straight[x]));
            best = lesser(best, join(before, left[x]));
            best = lesser(best, join(next, right[x]));
            last = lesser(best, join(last, west[x]));
            changed |= last < old[k];
            line[x * LANES] = last;
            before = beside;
            beside = next;
        }
    }
    if (!__any_sync(ALL, changed) && !scan) return false;
    for (int x = TILE - 1; x >= 0; x--) {
        dist old = line[x * LANES];
        last = x + 1 < TILE ? lesser(old, join(last, east[x])) : old;
        changed |= last < old;
        line[x * LANES] = last;
        row[x * LANES] = last;
    }
    return __any_sync(ALL, changed);
}

// Compute the entries between the rim cells of tiles; a block is one warp, for one tile and group.
extern "C" __global__ void __launch_bounds__(LANES) relax(
    const u8* absent, i64 pitch, i64 across, const dist* weights, dist nothing, int symmetric,
    i64 entries_of_tile, dist* scratch, dist* entries
) {
    __shared__ dist lines[LINES];
    const int lane = threadIdx.x;
    const i64 tile = blockIdx.x / GROUPS;
    const int first = blockIdx.x % GROUPS * LANES, b = first + lane;
    weights += tile * 8 * CELLS;
    entries += tile * entries_of_tile;
    dist* distances = scratch + (i64)blockIdx.x * CELLS * LANES + lane;
    dist* line = lines + lane;
    for (int cell = 0; cell < CELLS; cell++) distances[cell * LANES] = top();
    if (b < RIM && !absent[place(pitch, across, tile, rim_row(b), rim_col(b))])
        distances[(rim_row(b) * TILE + rim_col(b)) * LANES] = nothing;

    // Rows that must be relaxed from the row above, or below. Rows of sources are scanned at first.
    Rows sources = {}, down = {}, up = {};
    for (int k = first; k < first + LANES && k < RIM; k++) {
        const int y = rim_row(k);
        sources.add(y);
        down.add(y);
        down.add(y + 1);
        up.add(y - 1);
    }
    bool busy = true;
    while (busy) {
        busy = false;
        for (int y; (y = down.first()) >= 0;) {
            for (int x = 0; x < TILE; x++)
                line[x * LANES] = y ? distances[((y - 1) * TILE + x) * LANES] : top();
            do {
                down.remove(y);
                if (relax_row<true>(distances, line, weights, y, sources.has(y))) {
                    down.add(y + 1);
                    up.add(y - 1);
                }
                y++;
            } while (y < TILE && down.has(y));
        }
        for (int y; (y = up.last()) >= 0;) {
            busy = true;
            for (int x = 0; x < TILE; x++)
                line[x * LANES] = y < TILE - 1 ? distances[((y + 1) * TILE + x) * LANES] : top();
            do {
                up.remove(y);
                if (relax_row<false>(distances, line, weights, y, sources.has(y))) {
                    down.add(y + 1);
                    up.add(y - 1);
                }
                y--;
            } while (y >= 0 && up.has(y));
        }
    }

    // Transposed through shared memory, so that writes of a row of entries coalesce.
    for (int a0 = 0; a0 < RIM; a0 += LANES) {
        __syncwarp();
        for (int k = 0; k < LANES && a0 + k < RIM; k++)
            lines[k * (LANES + 1) + lane] =
                distances[(rim_row(a0 + k) * TILE + rim_col(a0 + k)) * LANES];
        __syncwarp();
        int a = a0 + lane;
        for (int k = 0; k < LANES && first + k < RIM; k++) {
            i64 from = first + k;
            if (a < (symmetric ? from : RIM))
                entries[(symmetric ? from * (from - 1) / 2 : from * RIM) + a] =
                    lines[lane * (LANES + 1) + k];
        }
    }
}

// The entries after these: costs of the steps into rim cells from other tiles, listed by `rim` and
// `directions`.
extern "C" __global__ void cross(
    const u8* absent, i64 pitch, i64 tiles, i64 across, const dist* weights, const i64* rim,
    const i64* directions, i64 steps, i64 entries_of_tile, dist* entries
) {
    i64 first = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    for (i64 n = first; n < tiles * steps; n += (i64)gridDim.x * blockDim.x) {
        i64 tile = n / steps, p = n % steps;
        int k = (int)directions[p], row = rim_row((int)rim[p]), col = rim_col((int)rim[p]);
        bool none = absent[place(pitch, across, tile, row + row_step(k), col + col_step(k))];
        entries[(tile + 1) * entries_of_tile - steps + p] =
            none ? top() : weights[(tile * 8 + k) * CELLS + row * TILE + col];
    }
}
