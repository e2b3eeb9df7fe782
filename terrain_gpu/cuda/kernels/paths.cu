// Shortest paths over a padded raster: `relax` to convergence, then `predecessors`.
//
// Arrays pad the raster to whole tiles and add a ring of cells; rows have `pitch` cells. An absent
// cell has the distance absent(). Macros: those of costs.cuh, DIAGONAL, CORNERS (whether diagonal
// steps may pass between two absent cells), REVERSE, HAS_FRICTION, WARPS (per block), TILE_BYTES
// (the size of Tile).
//
// A warp relaxes a tile of 32 x 32 cells in its own part of shared memory, by sweeps like those of
// the CPU: down and up row by row, with a lane per column; between them right and left, with a lane
// per row. Bit masks skip rows and columns beside which nothing has changed.
#include "costs.cuh"
#include "steps.cuh"
#include "terrain.cuh"
#include "pending.cuh"

#define PITCH (SIDE + 3) // odd: the cells of a column lie in different banks
#define RING (SIDE + 2)
#define ALL 0xffffffffu
#define MOST_STEPS 192 // of one visit: a wave lasts as long as its slowest tile

// Rasters of distances that are relaxed together, one after another in memory; tiles are numbered
// through all of them.
struct Planes {
    i64 tiles;          // of each
    const dist* limits; // of each: tiles with greater keys are skipped
};

// A tile and its ring.
struct Tile {
    dist distances[RING * PITCH];
    CELL heights[RING * PITCH];
#if HAS_FRICTION
    FRICTION frictions[RING * PITCH];
#endif
#if HAS_LENGTH
    f64 diagonal[RING], south[RING]; // from this row to the next
#endif
#if !CORNERS
    u64 absent[RING];
#endif
};

// State of a sweep over a tile, the same in all lanes of the warp unless noted. Rows and columns
// are numbered with the ring, 0 to 33. A set bit means that the row or column changed and that the
// next one, in the direction of the name, has not been relaxed since.
struct Sweep {
    u32 down, right; // bit k: row, column k
    u32 up, left;    // bit k: row, column k + 2
    u32 touched;     // bit k: row k + 1 changed
    u32 column, row; // per lane: absent cells of its column and of its row; bit k: k + 1
    f64 east;        // per lane: length of the step E in its row
    u32 steps;

    __device__ __forceinline__ void all() { down = right = up = left = ~0u; }
    __device__ __forceinline__ bool quiet() const { return !(down | right | up | left); }
};

__device__ __forceinline__ bool bit(u64 mask, int k) { return mask >> k & 1; }

// Cost of the step into cell `i` from cell `j`, both indices into the tile.
__device__ __forceinline__ dist step(
    const Tile& t, const Parameters& p, int i, int j, int direction, f64 length
) {
#if MODEL == HOPS
    return t.heights[i] >> direction & 1 ? 1 : top();
#else
#if REVERSE
    int from = i, to = j;
#else
    int from = j, to = i;
#endif
    value a = (value)t.heights[from], b = (value)t.heights[to];
#if HAS_FRICTION
    f64 fa = (f64)t.frictions[from], fb = (f64)t.frictions[to];
#else
    f64 fa = (f64)a, fb = (f64)b;
#endif
    return edge(p, a, b, fa, fb, length);
#endif
}

// The distance of the cell in row y, column x by way of its neighbour in direction K.
template <int K>
__device__ __forceinline__ dist by_way_of(
    const Tile& t, const Parameters& p, int y, int x, f64 length
) {
    constexpr int dy = row_step(K), dx = col_step(K);
    int i = y * PITCH + x, j = i + dy * PITCH + dx;
    dist found = join(t.distances[j], step(t, p, i, j, K, length));
#if !CORNERS
    if (dx && dy && bit(t.absent[y], x + dx) && bit(t.absent[y + dy], x)) found = top();
#endif
    return found;
}

__device__ __forceinline__ f64 straight_length(const Tile& t, int y, int dy) {
#if HAS_LENGTH
    return t.south[dy < 0 ? y - 1 : y];
#else
    return 0;
#endif
}

__device__ __forceinline__ f64 diagonal_length(const Tile& t, int y, int dy) {
#if HAS_LENGTH
    return t.diagonal[dy < 0 ? y - 1 : y];
#else
    return 0;
#endif
}

// Relax rows from the row above (K 6, directions 5 to 7) or below (K 2, directions 3 to 1).
template <int K>
__device__ __forceinline__ void relax_rows(Tile& t, const Parameters& p, Sweep& s, int lane) {
    constexpr int ahead = -row_step(K);
    u32& fresh = K == 6 ? s.down : s.up;
    while (fresh) {
        // The first row beside one that changed; bits as in Sweep.
        int y = K == 6 ? __ffs(fresh) : 32 - __clz(fresh);
        fresh &= ~(1u << (y - 1));
        int x = lane + 1, i = y * PITCH + x;
        dist old = t.distances[i];
        dist best = lesser(old, by_way_of<K>(t, p, y, x, straight_length(t, y, -ahead)));
#if DIAGONAL
        constexpr int RIGHT = K == 6 ? 7 : 1, LEFT = K == 6 ? 5 : 3;
        f64 length = diagonal_length(t, y, -ahead);
        best = lesser(best, by_way_of<RIGHT>(t, p, y, x, length));
        best = lesser(best, by_way_of<LEFT>(t, p, y, x, length));
#endif
        bool better = best < old && !(s.column >> (y - 1) & 1);
        if (better) t.distances[i] = best;
        u32 changed = __ballot_sync(ALL, better);
        s.steps++;
        if (changed) {
            s.right |= changed << 1;
            s.left |= changed >> 1;
            s.down |= 2u << (y - 1);
            s.up |= 1u << (y - 1) >> 1;
            s.touched |= 1u << (y - 1);
        }
        __syncwarp();
    }
}

// Relax columns from the column on their left (K 4) or right (K 0), one after another.
template <int K>
__device__ __forceinline__ void relax_columns(Tile& t, const Parameters& p, Sweep& s, int lane) {
    constexpr int ahead = K == 4 ? 1 : -1;
    u32& fresh = K == 4 ? s.right : s.left;
    int row = (lane + 1) * PITCH;
    u32 rows = 0; // per lane: whether its row changed
    while (fresh) {
        int x = K == 4 ? __ffs(fresh) : 32 - __clz(fresh);
        dist before = t.distances[row + x - ahead];
        while (true) {
            fresh &= ~(1u << (x - 1));
            dist old = t.distances[row + x];
            dist by = join(before, step(t, p, row + x, row + x - ahead, K, s.east));
            bool better = by < old && !(s.row >> (x - 1) & 1);
            before = better ? by : old;
            if (better) t.distances[row + x] = by;
            rows |= better;
            s.steps++;
            // Only onward: going back never shortens a distance.
            if (__any_sync(ALL, better)) fresh |= K == 4 ? 2u << (x - 1) : 1u << (x - 1) >> 1;
            x += ahead;
            if (x < 1 || x > SIDE || !(fresh >> (x - 1) & 1)) break;
        }
    }
    u32 changed = __ballot_sync(ALL, rows);
    s.down |= changed << 1;
    s.up |= changed >> 1;
    s.touched |= changed;
    __syncwarp();
}

// Relax the outer columns from the ring beside them.
__device__ __forceinline__ void relax_sides(Tile& t, const Parameters& p, Sweep& s, int lane) {
    int y = lane + 1;
    dist first = t.distances[y * PITCH + 1], last = t.distances[y * PITCH + SIDE];
    dist new_first = lesser(first, by_way_of<4>(t, p, y, 1, s.east));
    dist new_last = lesser(last, by_way_of<0>(t, p, y, SIDE, s.east));
#if DIAGONAL
    f64 above = diagonal_length(t, y, -1), below = diagonal_length(t, y, 1);
    new_first = lesser(new_first, by_way_of<5>(t, p, y, 1, above));
    new_first = lesser(new_first, by_way_of<3>(t, p, y, 1, below));
    new_last = lesser(new_last, by_way_of<7>(t, p, y, SIDE, above));
    new_last = lesser(new_last, by_way_of<1>(t, p, y, SIDE, below));
#endif
    bool better_first = new_first < first && !(s.row & 1);
    bool better_last = new_last < last && !(s.row >> (SIDE - 1));
    __syncwarp();
    if (better_first) t.distances[y * PITCH + 1] = new_first;
    if (better_last) t.distances[y * PITCH + SIDE] = new_last;
    u32 left = __ballot_sync(ALL, better_first), right = __ballot_sync(ALL, better_last);
    u32 changed = left | right;
    s.down |= changed << 1;
    s.up |= changed >> 1;
    s.touched |= changed;
    if (left) s.right |= 2;
    if (right) s.left |= 1u << (SIDE - 2);
    s.steps += 2;
    __syncwarp();
}

// Sweep until nothing changes, or for about MOST_STEPS. Returns whether nothing changes any more.
__device__ __forceinline__ bool sweep(Tile& t, const Parameters& p, Sweep& s, int lane) {
    relax_sides(t, p, s, lane);
    while (true) {
        relax_rows<6>(t, p, s, lane);
        relax_columns<4>(t, p, s, lane);
        relax_columns<0>(t, p, s, lane);
        relax_rows<2>(t, p, s, lane);
        relax_columns<4>(t, p, s, lane);
        relax_columns<0>(t, p, s, lane);
        if (s.quiet()) return true;
        if (s.steps >= MOST_STEPS) return false;
    }
}

// Copy a tile and its ring to shared memory.
__device__ __forceinline__ void load(
    Tile& t, Sweep& s, const Terrain& terrain, const dist* distances, i64 row, i64 col, int lane
) {
    // The sides first: these loads overlap with those of the rows. Lanes 0 to 3 load the two
    // remaining cells of each side.
    const i64 corner = row * terrain.pitch + col;
    const int ys[3] = {lane, lane, SIDE + (lane & 1)};
    const int xs[3] = {0, SIDE + 1, lane & 2 ? SIDE + 1 : 0};
    dist side[3];
    CELL side_heights[3];
#if HAS_FRICTION
    FRICTION side_frictions[3];
#endif
#pragma unroll
    for (int k = 0; k < 3; k++) {
        i64 at = corner + ys[k] * terrain.pitch + xs[k];
        if (k == 2 && lane >= 4) break;
        side[k] = __ldcg(distances + at);
        side_heights[k] = __ldg(terrain.heights + at);
#if HAS_FRICTION
        side_frictions[k] = __ldg(terrain.frictions + at);
#endif
    }
#if HAS_LENGTH
    const f64* lengths = terrain.lengths + row;
    s.east = __ldg(lengths + 1 + lane);
    f64 diagonal = __ldg(lengths + terrain.rows + lane);
    f64 south = __ldg(lengths + 2 * terrain.rows + lane);
    if (lane == 0) {
        t.diagonal[SIDE] = __ldg(lengths + terrain.rows + SIDE);
        t.south[SIDE] = __ldg(lengths + 2 * terrain.rows + SIDE);
    }
#else
    s.east = 0;
#endif
    s.column = s.row = 0;
#pragma unroll 1
    for (int half = 0; half < RING; half += RING / 2) {
        dist d[RING / 2]; // all loads are issued before the first value is used
        CELL h[RING / 2];
#if HAS_FRICTION
        FRICTION f[RING / 2];
#endif
        i64 at = corner + half * terrain.pitch + 1 + lane;
#pragma unroll
        for (int k = 0; k < RING / 2; k++, at += terrain.pitch) {
            d[k] = __ldcg(distances + at);
            h[k] = __ldg(terrain.heights + at);
#if HAS_FRICTION
            f[k] = __ldg(terrain.frictions + at);
#endif
        }
#pragma unroll
        for (int k = 0; k < RING / 2; k++) {
            int y = half + k, i = y * PITCH + 1 + lane;
            bool gone = is_absent(d[k]);
            t.distances[i] = gone ? top() : d[k];
            t.heights[i] = h[k];
#if HAS_FRICTION
            t.frictions[i] = f[k];
#endif
            u32 void_cells = __ballot_sync(ALL, gone);
            if (y >= 1 && y <= SIDE) {
                s.column |= (u32)gone << (y - 1);
                if (lane == y - 1) s.row = void_cells;
            }
#if !CORNERS
            if (lane == 0) t.absent[y] = (u64)void_cells << 1;
#endif
        }
    }
    __syncwarp();
#pragma unroll
    for (int k = 0; k < 3; k++) {
        if (k == 2 && lane >= 4) break;
        int i = ys[k] * PITCH + xs[k];
        t.distances[i] = is_absent(side[k]) ? top() : side[k];
        t.heights[i] = side_heights[k];
#if HAS_FRICTION
        t.frictions[i] = side_frictions[k];
#endif
#if !CORNERS
        if (is_absent(side[k])) atomicOr(&t.absent[ys[k]], 1ull << xs[k]);
#endif
    }
#if HAS_LENGTH
    t.diagonal[lane] = diagonal;
    t.south[lane] = south;
#endif
    __syncwarp();
}

__device__ __forceinline__ order least_of_warp(order key) {
#pragma unroll
    for (int k = 16; k; k >>= 1) {
        order other = __shfl_xor_sync(ALL, key, k);
        key = other < key ? other : key;
    }
    return key;
}

// The least distance that decreased, as a key; NONE if none did.
__device__ __forceinline__ order least_better(dist now, dist before) {
    bool better = now < before;
    if (!__any_sync(ALL, better)) return NONE;
    return least_of_warp(better ? order_of(now) : NONE);
}

// Make the neighbours of a tile pending. Lane k < 8 has the key for the neighbour in direction k,
// lane 8 the key for the tile itself if it is unfinished.
__device__ __forceinline__ void tell(
    const Pending& q, const Planes& planes, u64 next, i64 tile, order key, dist farthest, int lane
) {
    i64 own = tile % planes.tiles, down = planes.tiles / q.across;
    i64 i = own / q.across, j = own % q.across;
    if (lane < 8) {
        i += row_step(lane);
        j += col_step(lane);
    }
    bool there = lane <= 8 && key != NONE && i >= 0 && i < down && j >= 0 && j < q.across &&
                 !(distance_of(key) > farthest);
    if (!there) key = NONE;
    i64 other = tile - own + i * q.across + j;
    bool listed = there && lower(q, other, key, lane == 8 ? WHOLE : 0);
    u32 added = __ballot_sync(ALL, listed);
    order least = least_of_warp(key);
    Wave& wave = q.state->waves[next % 3];
    if (lane == 0 && least < *(volatile order*)&wave.least) atomicMin(&wave.least, least);
    if (!added) return;
    u32 first = 0;
    if (lane == 0) first = atomicAdd(&wave.candidates, (u32)__popc(added));
    first = __shfl_sync(ALL, first, 0);
    if (listed) {
        candidates(q, next)[first + __popc(added & ((1u << lane) - 1))] = (u32)other;
        atomicAdd(&wave.sum, (f64)distance_of(key));
    }
}

__device__ __forceinline__ order better_corner(dist now, dist side, int lane) {
    dist before = __shfl_sync(ALL, side, lane);
    return now < before ? order_of(now) : NONE;
}

// Relax one tile and make neighbours pending for the wave after `wave`.
__device__ __forceinline__ void visit(
    Tile& t, const Terrain& terrain, const Parameters& p, const Pending& q, const Planes& planes,
    dist* distances, u64 wave, i64 tile, dist guard, u64& visits, u64& steps, int lane
) {
    i64 plane = tile / planes.tiles, own_tile = tile % planes.tiles;
    dist farthest = __ldg(planes.limits + plane);
    distances += plane * terrain.rows * terrain.pitch;
    u32 flags = 0;
    order own = NONE;
    if (lane == 0) {
        // A warp that lowers the key from here on lists the tile again. All that was written
        // before the key was lowered is visible below.
        flags = atomicAnd(q.flags + tile, ~LISTED);
        if (!(flags & AWAY)) own = atomicExch(q.keys + tile, NONE); // else the tile keeps its key
        __threadfence();
    }
    own = __shfl_sync(ALL, own, 0);
    if (own == NONE || distance_of(own) > farthest) return;
    bool whole = __shfl_sync(ALL, flags, 0) & WHOLE;
    if (whole && lane == 0) atomicAnd(q.flags + tile, ~WHOLE);
    i64 row = own_tile / q.across * SIDE, col = own_tile % q.across * SIDE;
    Sweep s;
    load(t, s, terrain, distances, row, col, lane);
    s.down = 1;
    s.up = 1u << (SIDE - 1);
    s.right = s.left = s.touched = s.steps = 0;
    if (whole) s.all();
    int side = (lane + 1) * PITCH;
    dist north = t.distances[PITCH + 1 + lane], south = t.distances[SIDE * PITCH + 1 + lane];
    dist west = t.distances[side + 1], east = t.distances[side + SIDE];
    bool done = sweep(t, p, s, lane);
    visits++;
    steps += s.steps;
    bool beyond = false;
    for (u32 todo = s.touched; todo; todo &= todo - 1) {
        int y = __ffs(todo);
        dist d = t.distances[y * PITCH + 1 + lane];
        if (s.column >> (y - 1) & 1) continue;
        distances[(row + y) * terrain.pitch + col + 1 + lane] = d;
        beyond |= d < top() && d > guard;
    }
    if (__any_sync(ALL, beyond) && lane == 0) q.state->waves[(wave + 1) % 3].overflow = 1;
    if (!s.touched) return;
    if (lane == 0 && !(flags & CHANGED)) atomicOr(q.flags + tile, CHANGED);
    order up = least_better(t.distances[PITCH + 1 + lane], north);
    order down = least_better(t.distances[SIDE * PITCH + 1 + lane], south);
    order left = least_better(t.distances[side + 1], west);
    order right = least_better(t.distances[side + SIDE], east);
    order nw = better_corner(t.distances[PITCH + 1], north, 0);
    order ne = better_corner(t.distances[PITCH + SIDE], north, SIDE - 1);
    order sw = better_corner(t.distances[SIDE * PITCH + 1], south, 0);
    order se = better_corner(t.distances[SIDE * PITCH + SIDE], south, SIDE - 1);
    order keys[8] = {right, se, down, sw, left, nw, up, ne};
    order key = lane == 8 && !done ? own : NONE;
#pragma unroll
    for (int k = 0; k < 8; k++) key = lane == k ? keys[k] : key;
    __threadfence();
    __syncwarp();
    if (__any_sync(ALL, key != NONE)) tell(q, planes, wave + 1, tile, key, farthest, lane);
}

// Grid-wide barrier; `goal` is the number of arrivals since the launch to wait for.
__device__ __forceinline__ void barrier(u32* arrived, u32& goal) {
    goal += gridDim.x;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(arrived, 1u);
        while ((i32)(*(volatile u32*)arrived - goal) < 0) __nanosleep(32);
        __threadfence();
    }
    __syncthreads();
}

// Distribute the candidates of a wave: keys up to the limit are chosen, others go to the next wave.
__device__ void choose(
    const Pending& q, const Planes& planes, u64 number, u32 count, f64 limit
) {
    int lane = threadIdx.x & 31;
    i64 warps = (i64)gridDim.x * WARPS;
    i64 warp = (i64)blockIdx.x * WARPS + threadIdx.x / 32;
    Wave& now = q.state->waves[number % 3];
    Wave& next = q.state->waves[(number + 1) % 3];
    for (i64 first = warp * 32; first < count; first += warps * 32) {
        bool there = first + lane < count;
        u32 tile = there ? __ldcg(candidates(q, number) + first + lane) : 0;
        order key = there ? __ldcg(q.keys + tile) : NONE;
        dist farthest = __ldg(planes.limits + tile / (u32)planes.tiles);
        bool drop = key == NONE || distance_of(key) > farthest;
        if (there && drop) atomicAnd(q.flags + tile, ~LISTED);
        f64 distance = (f64)distance_of(key);
        bool take = there && !drop && !(distance > limit), keep = there && !drop && !take;
        u32 taken = __ballot_sync(ALL, take), kept = __ballot_sync(ALL, keep);
        u32 below = (1u << lane) - 1, to = 0, on = 0;
        order least = kept ? least_of_warp(keep ? key : NONE) : NONE;
        f64 sum = keep ? distance : 0;
        if (kept) {
#pragma unroll
            for (int k = 16; k; k >>= 1) sum += __shfl_xor_sync(ALL, sum, k);
        }
        if (lane == 0 && taken) to = atomicAdd(&now.chosen, (u32)__popc(taken));
        if (lane == 0 && kept) {
            on = atomicAdd(&next.candidates, (u32)__popc(kept));
            atomicMin(&next.least, least);
            atomicAdd(&next.sum, sum);
        }
        to = __shfl_sync(ALL, to, 0);
        on = __shfl_sync(ALL, on, 0);
        if (take) chosen(q)[to + __popc(taken & below)] = tile;
        if (keep) candidates(q, number + 1)[on + __popc(kept & below)] = tile;
    }
}

// Relax up to `waves` waves of tiles, roughly in the order of their keys, until none is pending.
//
// Every block is resident (the launch is cooperative), one per multiprocessor. A wave relaxes about
// `target` candidates, those with the least keys: a good range of keys in units of cost is unknown,
// but the number of tiles that fills the GPU is known. The order affects only the time.
extern "C" __global__ void __launch_bounds__(WARPS * 32, 1) relax(
    const CELL* heights, const FRICTION* frictions, const f64* lengths, i64 rows, i64 pitch,
    dist* distances, i64 down, i64 across, order* keys, u32* flags, u32* lists, State* state,
    i64 tiles, const dist* limits, const f64* p, dist guard, f64 target, i64 waves
) {
    static_assert(sizeof(Tile) == TILE_BYTES, "the host reckons with another size");
    extern __shared__ __align__(16) unsigned char memory[];
    Tile& t = ((Tile*)memory)[threadIdx.x / 32];
    const Parameters parameters = parameters_of(p);
    const Terrain terrain = {heights, frictions, lengths, rows, pitch};
    const Pending q = {down, across, keys, flags, lists, state};
    const Planes planes = {tiles, limits};
    int lane = threadIdx.x & 31;
    bool first_thread = blockIdx.x == 0 && threadIdx.x == 0;
    // Consecutive warps run on different multiprocessors: a few tiles use many of them.
    const u32 warp = threadIdx.x / 32 * gridDim.x + blockIdx.x, warps = gridDim.x * WARPS;
    u64 number = state->number, visits = 0, steps = 0;
    const u64 end = number + waves;
    u32 goal = 0;
    for (; number < end; number++) {
        volatile Wave* now = state->waves + number % 3;
        u32 count = now->candidates;
        if (!count || now->overflow) break;
        if (first_thread) clear(state->waves[(number + 2) % 3]);
        const u32* list = candidates(q, number);
        if (count > target) {
            // Assume that keys are spread evenly from the least, with the same mean.
            f64 least = (f64)distance_of(now->least);
            f64 width = 2 * (now->sum / count - least) * (target / count);
            choose(q, planes, number, count, width > 0 ? least + width : least);
            barrier(&state->arrived, goal);
            count = now->chosen;
            list = chosen(q);
        }
        for (u32 k = warp; k < count;) {
            u32 tile = __ldcg(list + k);
            visit(
                t, terrain, parameters, q, planes, distances, number, tile, guard, visits, steps, lane
            );
            if (count <= warps) break;
            u32 more = 0;
            if (lane == 0) more = atomicAdd((u32*)&now->taken, 1u);
            k = warps + __shfl_sync(ALL, more, 0);
        }
        barrier(&state->arrived, goal);
    }
    if (lane == 0) {
        atomicAdd(&state->visits, visits);
        atomicAdd(&state->steps, steps);
    }
    if (first_thread) {
        // Other blocks may still read this wave's counters, but not these two.
        state->overflow = state->waves[number % 3].overflow;
        state->number = number;
    }
}

// -- predecessors -----------------------------------------------------------------------------

#if MODEL != HOPS
// Per cell, the D8 code of the strictly nearer predecessor with the lowest direction, 255 if
// unreached, or 0 if there is none; then `flat` has the bits of the equally far predecessors.
extern "C" __global__ void predecessors(
    const CELL* heights, const FRICTION* frictions, const f64* lengths, i64 rows, i64 pitch,
    const dist* distances, const f64* p, dist farthest, i64 height, i64 width, u8* codes, u8* flat
) {
    const Parameters parameters = parameters_of(p);
    const Terrain terrain = {heights, frictions, lengths, rows, pitch};
    i64 cells = height * width;
    for (i64 id = (i64)blockIdx.x * blockDim.x + threadIdx.x; id < cells;
         id += (i64)gridDim.x * blockDim.x) {
        i64 row = id / width + 1, at = row * pitch + id % width + 1;
        dist here = distances[at];
        u32 code = 0, even = 0;
        bool reached = here < top() && here <= farthest; // absent is neither
        for (int k = 7; k >= 0 && reached; k--) {
#if !DIAGONAL
            if (k & 1) continue;
#endif
            dist there = distances[at + row_step(k) * pitch + col_step(k)];
            if (!(there <= here)) continue;
            if (!is_tight(terrain, parameters, distances, row, at, k, here, there)) continue;
            if (there < here) code = 1u << k;
            else even |= 1u << k;
        }
        codes[id] = reached ? code : 255;
        flat[at] = reached && !code ? even : 0;
    }
}
#endif
