// Shortest paths over a padded raster: `relax` to convergence, then `predecessors`.
//
// Arrays pad the raster to whole tiles and add a ring of cells, or two for 16 neighbours; rows have
// `pitch` cells. Pointers lead to the corner of the inner ring. An absent cell has the distance
// absent(). Macros: those of costs.cuh, DIAGONAL, KNIGHTS (16 neighbours), CORNERS (whether diagonal
// steps may pass between two absent cells), REVERSE, HAS_FRICTION, WARPS (per block), TILE_BYTES
// (the size of Tile). SIGNED if costs may be negative, CONTINUOUS for the metric of paths/cost/continuous.py.
//
// A warp relaxes a tile of 32 x 32 cells in its own part of shared memory, by sweeps like those of
// the CPU: down and up row by row, with a lane per column; between them right and left, with a lane
// per row. Bit masks skip rows and columns beside which nothing has changed.
#include "costs.cuh"
#include "steps.cuh"
#include "terrain.cuh"
#include "pending.cuh"

#define RING (SIDE + 2 * HALO)
#define PITCH (RING + 1) // odd: the cells of a column lie in different banks
#define ABSENT_BITS (KNIGHTS || !CORNERS)
#define ALL 0xffffffffu
#define MOST_STEPS 192 // of one visit: a wave lasts as long as its slowest tile
#ifdef CONTINUOUS
#define SHARES 7                // as in paths/cost/continuous.py
#define NEXT 1.0000000000000002 // 1 + 2^-52
#endif

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
#if KNIGHTS
    f64 flat[RING], steep[RING]; // from this row to the next; from the one before this to the next
#endif
#endif
#if ABSENT_BITS
    u64 absent[RING];
#endif
};

// State of a sweep over a tile, the same in all lanes of the warp unless noted. Rows and columns
// are numbered with the inner ring, 0 to 33. A set bit means that the row or column changed and that the
// next one, in the direction of the name, has not been relaxed since.
struct Sweep {
    u32 down, right; // bit k: row, column k
    u32 up, left;    // bit k: row, column k + 2
    u32 touched;     // bit k: row k + 1 changed
    u32 column, row; // per lane: absent cells of its column and of its row; bit k: k + 1
    f64 east;        // per lane: length of the step E in its row
    u32 steps;
#ifdef CONTINUOUS
    const f64* ratios; // see `between`
    i64 rows;
#endif

    __device__ __forceinline__ void all() { down = right = up = left = ~0u; }
    __device__ __forceinline__ bool quiet() const { return !(down | right | up | left); }
};

// Index into the tile.
__device__ __forceinline__ int place(int y, int x) {
    return (y + HALO - 1) * PITCH + x + HALO - 1;
}

// The rows below and above changed ones, which must be relaxed; bits as in Sweep.
__device__ __forceinline__ u32 next_below(u32 rows) { return KNIGHTS ? rows << 1 | rows << 2 : rows << 1; }
__device__ __forceinline__ u32 next_above(u32 rows) { return KNIGHTS ? rows >> 1 | rows >> 2 : rows >> 1; }

#if ABSENT_BITS
__device__ __forceinline__ bool gone(const Tile& t, int y, int x) {
    return t.absent[y + HALO - 1] >> (x + HALO - 1) & 1;
}
#endif

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

// Distance behind a step. By the continuous metric, it is greater than what it comes from.
__device__ __forceinline__ dist behind(dist distance, dist cost) {
    dist found = join(distance, cost);
#ifdef CONTINUOUS
    found = NEXT * distance > found ? NEXT * distance : found;
#endif
    return found;
}

// Cost of the step to the cell in row y, column x from its neighbour in direction K.
template <int K>
__device__ __forceinline__ dist cost_by(
    const Tile& t, const Parameters& p, int y, int x, f64 length
) {
    constexpr int dy = row_step(K), dx = col_step(K);
    int i = place(y, x);
    dist found = step(t, p, i, i + dy * PITCH + dx, K, length);
#if !CORNERS
    if (dx && dy && gone(t, y, x + dx) && gone(t, y + dy, x)) found = top();
#endif
    return found;
}

// The distance of the cell in row y, column x by way of its neighbour in direction K.
template <int K>
__device__ __forceinline__ dist by_way_of(
    const Tile& t, const Parameters& p, int y, int x, f64 length
) {
    dist found = t.distances[place(y + row_step(K), x + col_step(K))];
    return behind(found, cost_by<K>(t, p, y, x, length));
}

#ifdef CONTINUOUS
// The distance of the cell in row y, column x straight from a point between its neighbours in the
// directions A, beside it, and D, diagonal: as `_between` in paths/relax/continuous.py.
template <int A, int D>
__device__ __forceinline__ dist between(
    const Tile& t, const Parameters& p, const Sweep& s, int y, int x, f64 beside, f64 diagonal
) {
    constexpr int kind = A == 6 ? 0 : A == 2 ? 2 : row_step(D) < 0 ? 4 : 6;
    dist a = t.distances[place(y + row_step(A), x + col_step(A))];
    dist d = t.distances[place(y + row_step(D), x + col_step(D))];
    dist cost_a = cost_by<A>(t, p, y, x, beside), cost_d = cost_by<D>(t, p, y, x, diagonal);
    const f64* ratios = s.ratios + kind * SHARES * s.rows + y;
    dist best = top();
#pragma unroll
    for (int k = 0; k < SHARES; k++) {
        const f64 share = (k + 1) / (SHARES + 1.0);
        f64 to_a = __ldg(ratios + k * s.rows), to_d = __ldg(ratios + (SHARES + k) * s.rows);
        best = lesser(best, (1.0 - share) * (a + cost_a * to_a) + share * (d + cost_d * to_d));
    }
    dist least = NEXT * (d > a ? d : a);
    return least > best ? least : best;
}
#endif

#if KNIGHTS
// The same for the knight's move K, 8 to 15.
template <int K> __device__ __forceinline__ dist by_move(const Tile& t, const Parameters& p, int y, int x) {
    constexpr int dy = row_step_16(K), dx = col_step_16(K);
    int i = place(y, x), j = i + dy * PITCH + dx;
#if MODEL == HOPS
    return join(t.distances[j], t.heights[i] >> K & 1 ? 1 : top());
#else
    constexpr int one = K - 8, other = (K - 7) % 8;
    constexpr int uy = row_step(one), ux = col_step(one), vy = row_step(other), vx = col_step(other);
    int u = i + uy * PITCH + ux, v = i + vy * PITCH + vx;
    f64 length = 0;
#if HAS_LENGTH
    int first = dy < 0 ? y + dy : y;
    length = dy == 1 || dy == -1 ? t.flat[first] : t.steep[first + 1];
#endif
#if REVERSE
    int from = i, to = j;
#else
    int from = j, to = i;
#endif
    const CELL* z = t.heights;
#if HAS_FRICTION
    const FRICTION* f = t.frictions;
#else
    const CELL* f = z;
#endif
    dist cost = move_cost(p, z[from], z[to], f[from], f[to], z[u], z[v], f[u], f[v], length);
    if (gone(t, y + uy, x + ux) || gone(t, y + vy, x + vx)) cost = top();
    return join(t.distances[j], cost);
#endif
}

// The least of a distance and those by some knight's moves.
template <int... K> __device__ __forceinline__ dist by_moves(
    dist best, const Tile& t, const Parameters& p, int y, int x
) {
    ((best = lesser(best, by_move<K>(t, p, y, x))), ...);
    return best;
}
#endif

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

// Relax rows from the row above (K 6, directions 5 to 7) or below (K 2, directions 3 to 1), and by
// the knight's moves from that side.
template <int K>
__device__ __forceinline__ void relax_rows(Tile& t, const Parameters& p, Sweep& s, int lane) {
    constexpr int ahead = -row_step(K);
    u32& fresh = K == 6 ? s.down : s.up;
    while (fresh) {
        // The first row beside one that changed; bits as in Sweep.
        int y = K == 6 ? __ffs(fresh) : 32 - __clz(fresh);
        fresh &= ~(1u << (y - 1));
        int x = lane + 1, i = place(y, x);
        dist old = t.distances[i];
        dist best = lesser(old, by_way_of<K>(t, p, y, x, straight_length(t, y, -ahead)));
#if DIAGONAL
        constexpr int RIGHT = K == 6 ? 7 : 1, LEFT = K == 6 ? 5 : 3;
        f64 length = diagonal_length(t, y, -ahead);
        best = lesser(best, by_way_of<RIGHT>(t, p, y, x, length));
        best = lesser(best, by_way_of<LEFT>(t, p, y, x, length));
#endif
#ifdef CONTINUOUS
        // All triangles with a cell of that row, so that columns need not be relaxed for it.
        f64 straight = straight_length(t, y, -ahead), east = __shfl_sync(ALL, s.east, y - 1);
        best = lesser(best, between<K, RIGHT>(t, p, s, y, x, straight, length));
        best = lesser(best, between<K, LEFT>(t, p, s, y, x, straight, length));
        best = lesser(best, between<0, RIGHT>(t, p, s, y, x, east, length));
        best = lesser(best, between<4, LEFT>(t, p, s, y, x, east, length));
#endif
#if KNIGHTS
        constexpr int M = K == 6 ? 12 : 8;
        best = by_moves<M, M + 1, M + 2, M + 3>(best, t, p, y, x);
#endif
        bool better = best < old && !(s.column >> (y - 1) & 1);
        if (better) t.distances[i] = best;
        u32 changed = __ballot_sync(ALL, better);
        s.steps++;
        if (changed) {
            s.right |= changed << 1;
            s.left |= changed >> 1;
            s.down |= next_below(1u << (y - 1));
            s.up |= next_above(1u << (y - 1));
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
    int row = place(lane + 1, 0);
    u32 rows = 0; // per lane: whether its row changed
    while (fresh) {
        int x = K == 4 ? __ffs(fresh) : 32 - __clz(fresh);
        dist before = t.distances[row + x - ahead];
        while (true) {
            fresh &= ~(1u << (x - 1));
            dist old = t.distances[row + x];
            dist by = behind(before, step(t, p, row + x, row + x - ahead, K, s.east));
#ifdef CONTINUOUS
            constexpr int ABOVE = K == 4 ? 5 : 7, BELOW = K == 4 ? 3 : 1;
            f64 above = diagonal_length(t, lane + 1, -1), below = diagonal_length(t, lane + 1, 1);
            by = lesser(by, between<K, ABOVE>(t, p, s, lane + 1, x, s.east, above));
            by = lesser(by, between<K, BELOW>(t, p, s, lane + 1, x, s.east, below));
#endif
            bool better = by < old && !(s.row >> (x - 1) & 1);
            before = better ? by : old;
            if (better) t.distances[row + x] = by;
            rows |= better;
            s.steps++;
#ifdef CONTINUOUS
            __syncwarp(); // the next column reads other lanes' cells of this one
#endif
            // Only onward: going back never shortens a distance.
            if (__any_sync(ALL, better)) fresh |= K == 4 ? 2u << (x - 1) : 1u << (x - 1) >> 1;
            x += ahead;
            if (x < 1 || x > SIDE || !(fresh >> (x - 1) & 1)) break;
        }
    }
    u32 changed = __ballot_sync(ALL, rows);
    s.down |= next_below(changed);
    s.up |= next_above(changed);
    s.touched |= changed;
    __syncwarp();
}

// Relax the outer columns, two on each side for 16 neighbours, from the cells around the tile.
__device__ __forceinline__ void relax_sides(Tile& t, const Parameters& p, Sweep& s, int lane) {
    int y = lane + 1;
    dist first = t.distances[place(y, 1)], last = t.distances[place(y, SIDE)];
    dist new_first = lesser(first, by_way_of<4>(t, p, y, 1, s.east));
    dist new_last = lesser(last, by_way_of<0>(t, p, y, SIDE, s.east));
#if DIAGONAL
    f64 above = diagonal_length(t, y, -1), below = diagonal_length(t, y, 1);
    new_first = lesser(new_first, by_way_of<5>(t, p, y, 1, above));
    new_first = lesser(new_first, by_way_of<3>(t, p, y, 1, below));
    new_last = lesser(new_last, by_way_of<7>(t, p, y, SIDE, above));
    new_last = lesser(new_last, by_way_of<1>(t, p, y, SIDE, below));
#endif
#ifdef CONTINUOUS
    f64 north = straight_length(t, y, -1), south = straight_length(t, y, 1);
    new_first = lesser(new_first, between<4, 5>(t, p, s, y, 1, s.east, above));
    new_first = lesser(new_first, between<4, 3>(t, p, s, y, 1, s.east, below));
    new_first = lesser(new_first, between<6, 5>(t, p, s, y, 1, north, above));
    new_first = lesser(new_first, between<2, 3>(t, p, s, y, 1, south, below));
    new_last = lesser(new_last, between<0, 7>(t, p, s, y, SIDE, s.east, above));
    new_last = lesser(new_last, between<0, 1>(t, p, s, y, SIDE, s.east, below));
    new_last = lesser(new_last, between<6, 7>(t, p, s, y, SIDE, north, above));
    new_last = lesser(new_last, between<2, 1>(t, p, s, y, SIDE, south, below));
#endif
#if KNIGHTS
    new_first = by_moves<10, 11, 12, 13>(new_first, t, p, y, 1);
    new_last = by_moves<8, 9, 14, 15>(new_last, t, p, y, SIDE);
    dist second = t.distances[place(y, 2)], next_to_last = t.distances[place(y, SIDE - 1)];
    dist new_second = by_moves<11, 12>(second, t, p, y, 2);
    dist new_next_to_last = by_moves<8, 15>(next_to_last, t, p, y, SIDE - 1);
    bool better_second = new_second < second && !(s.row >> 1 & 1);
    bool better_next_to_last = new_next_to_last < next_to_last && !(s.row >> (SIDE - 2) & 1);
#endif
    bool better_first = new_first < first && !(s.row & 1);
    bool better_last = new_last < last && !(s.row >> (SIDE - 1));
    __syncwarp();
    if (better_first) t.distances[place(y, 1)] = new_first;
    if (better_last) t.distances[place(y, SIDE)] = new_last;
    u32 left = __ballot_sync(ALL, better_first), right = __ballot_sync(ALL, better_last);
    u32 changed = left | right;
    if (left) s.right |= 2;
    if (right) s.left |= 1u << (SIDE - 2);
#if KNIGHTS
    if (better_second) t.distances[place(y, 2)] = new_second;
    if (better_next_to_last) t.distances[place(y, SIDE - 1)] = new_next_to_last;
    left = __ballot_sync(ALL, better_second), right = __ballot_sync(ALL, better_next_to_last);
    changed |= left | right;
    if (left) s.right |= 4, s.left |= 1;
    if (right) s.right |= 1u << (SIDE - 1), s.left |= 1u << (SIDE - 3);
#endif
    s.down |= next_below(changed);
    s.up |= next_above(changed);
    s.touched |= changed;
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

// The cells left and right of a tile, with the corners, are loaded in some rounds; the last one has
// fewer than a warp.
#define ROUNDS (2 * HALO * RING / 32 + 1)
#define LAST_ROUND (2 * HALO * RING % 32)

__device__ __forceinline__ void find_beside(int round, int lane, int& y, int& x) {
#if KNIGHTS
    int number = 32 * round + lane, column = number / RING;
    y = number % RING + 1 - HALO;
    x = column < HALO ? column + 1 - HALO : SIDE + 1 + column - HALO;
#else
    y = round < 2 ? lane : SIDE + (lane & 1);
    x = (round < 2 ? round == 1 : lane & 2) ? SIDE + 1 : 0;
#endif
}

// Copy a tile and its ring to shared memory.
__device__ __forceinline__ void load(
    Tile& t, Sweep& s, const Terrain& terrain, const dist* distances, i64 row, i64 col, int lane
) {
    // The sides first: these loads overlap with those of the rows.
    const i64 corner = row * terrain.pitch + col;
    int ys[ROUNDS], xs[ROUNDS];
    dist side[ROUNDS];
    CELL side_heights[ROUNDS];
#if HAS_FRICTION
    FRICTION side_frictions[ROUNDS];
#endif
#pragma unroll
    for (int k = 0; k < ROUNDS; k++) {
        find_beside(k, lane, ys[k], xs[k]);
        i64 at = corner + ys[k] * terrain.pitch + xs[k];
        if (k == ROUNDS - 1 && lane >= LAST_ROUND) break;
        side[k] = __ldcg(distances + at);
        side_heights[k] = __ldg(terrain.heights + at);
#if HAS_FRICTION
        side_frictions[k] = __ldg(terrain.frictions + at);
#endif
    }
#if HAS_LENGTH
    const f64* lengths = terrain.lengths + row;
    s.east = __ldg(lengths + 1 + lane);
#ifdef CONTINUOUS
    s.ratios = lengths + 3 * terrain.rows, s.rows = terrain.rows;
#endif
    f64 diagonal = __ldg(lengths + terrain.rows + lane);
    f64 south = __ldg(lengths + 2 * terrain.rows + lane);
    if (lane == 0) {
        t.diagonal[SIDE] = __ldg(lengths + terrain.rows + SIDE);
        t.south[SIDE] = __ldg(lengths + 2 * terrain.rows + SIDE);
    }
#if KNIGHTS
    for (int k = lane; k < SIDE + 2; k += 32) {
        t.flat[k] = __ldg(lengths + 3 * terrain.rows + k);
        t.steep[k] = __ldg(lengths + 4 * terrain.rows + k - 1);
    }
#endif
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
        i64 at = corner + (half + 1 - HALO) * terrain.pitch + 1 + lane;
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
            int y = half + k + 1 - HALO, i = place(y, 1 + lane);
            bool void_cell = is_absent(d[k]);
            t.distances[i] = void_cell ? top() : d[k];
            t.heights[i] = h[k];
#if HAS_FRICTION
            t.frictions[i] = f[k];
#endif
            u32 void_cells = __ballot_sync(ALL, void_cell);
            if (y >= 1 && y <= SIDE) {
                s.column |= (u32)void_cell << (y - 1);
                if (lane == y - 1) s.row = void_cells;
            }
#if ABSENT_BITS
            if (lane == 0) t.absent[half + k] = (u64)void_cells << HALO;
#endif
        }
    }
    __syncwarp();
#pragma unroll
    for (int k = 0; k < ROUNDS; k++) {
        if (k == ROUNDS - 1 && lane >= LAST_ROUND) break;
        int i = place(ys[k], xs[k]);
        t.distances[i] = is_absent(side[k]) ? top() : side[k];
        t.heights[i] = side_heights[k];
#if HAS_FRICTION
        t.frictions[i] = side_frictions[k];
#endif
#if ABSENT_BITS
        u64 own = 1ull << (xs[k] + HALO - 1);
        if (is_absent(side[k])) atomicOr(&t.absent[ys[k] + HALO - 1], own);
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

// Cells of a tile that steps lead out from, per lane: some rows of its column, or columns of its
// row, from the outermost one inward.
struct Side {
    dist before[HALO];
    int first, inward; // indices into the tile

    __device__ __forceinline__ Side(const Tile& t, int first, int inward)
        : first(first), inward(inward) {
#pragma unroll
        for (int n = 0; n < HALO; n++) before[n] = t.distances[first + n * inward];
    }

    // The least distance that decreased, as a key; NONE if none did.
    __device__ __forceinline__ order decreased(const Tile& t) const {
        order key = NONE;
#pragma unroll
        for (int n = 0; n < HALO; n++) {
            dist now = t.distances[first + n * inward];
            if (now < before[n] && order_of(now) < key) key = order_of(now);
        }
        return key;
    }
};

__device__ __forceinline__ order least_on_side(order key) {
    return __any_sync(ALL, key != NONE) ? least_of_warp(key) : NONE;
}

// The key of a corner, from those of the lanes of a side; `lane` is at the corner.
__device__ __forceinline__ order at_corner(order key, int lane) {
    order found = __shfl_sync(ALL, key, lane);
#if KNIGHTS
    order next = __shfl_sync(ALL, key, lane ? lane - 1 : 1);
    found = next < found ? next : found;
#endif
    return found;
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
    s.down = KNIGHTS ? 3 : 1;
    s.up = (KNIGHTS ? 3u : 2u) << (SIDE - 2);
    s.right = s.left = s.touched = s.steps = 0;
    if (whole) s.all();
    const Side north(t, place(1, lane + 1), PITCH), south(t, place(SIDE, lane + 1), -PITCH);
    const Side west(t, place(lane + 1, 1), 1), east(t, place(lane + 1, SIDE), -1);
    bool done = sweep(t, p, s, lane);
    visits++;
    steps += s.steps;
    bool beyond = false;
    for (u32 todo = s.touched; todo; todo &= todo - 1) {
        int y = __ffs(todo);
        dist d = t.distances[place(y, lane + 1)];
        if (s.column >> (y - 1) & 1) continue;
        distances[(row + y) * terrain.pitch + col + 1 + lane] = d;
        beyond |= d < top() && d > guard;
    }
    if (__any_sync(ALL, beyond) && lane == 0) q.state->waves[(wave + 1) % 3].overflow = 1;
    if (!s.touched) return;
    if (lane == 0 && !(flags & CHANGED)) atomicOr(q.flags + tile, CHANGED);
    order top_row = north.decreased(t), bottom_row = south.decreased(t);
    order up = least_on_side(top_row), down = least_on_side(bottom_row);
    order left = least_on_side(west.decreased(t)), right = least_on_side(east.decreased(t));
    order nw = at_corner(top_row, 0), ne = at_corner(top_row, SIDE - 1);
    order sw = at_corner(bottom_row, 0), se = at_corner(bottom_row, SIDE - 1);
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
// Per cell, the code of the strictly nearer predecessor with the lowest direction, 255 if
// unreached, or 0 if there is none; then `flat` has the bits of the equally far predecessors.
extern "C" __global__ void predecessors(
    const CELL* heights, const FRICTION* frictions, const f64* lengths, i64 rows, i64 pitch,
    const dist* distances, const f64* p, dist farthest, i64 height, i64 width, u8* codes, mask* flat
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
        for (int k = 8 * HALO - 1; k >= 0 && reached; k--) {
#if !DIAGONAL
            if (k & 1) continue;
#endif
            dist there = distances[at + row_step_16(k) * pitch + col_step_16(k)];
            if (!(there <= here)) continue;
#if KNIGHTS
            bool tight = k < 8
                ? is_tight(terrain, parameters, distances, row, at, k, here, there)
                : is_tight_move(terrain, parameters, distances, row, at, k, here, there);
#else
            bool tight = is_tight(terrain, parameters, distances, row, at, k, here, there);
#endif
            if (!tight) continue;
            if (there < here) code = code_of(k);
            else even |= 1u << k;
        }
        codes[id] = reached ? code : 255;
        flat[at] = reached && !code ? even : 0;
    }
}
#endif

// -- costs that are refused -------------------------------------------------------------------

#if defined(SIGNED) || defined(CONTINUOUS)
#include "notes.cuh"

// Note the least id, first + row * cols + col, of a cell with a step into it that costs less than 0;
// for the continuous metric, of one with less than the least friction.
extern "C" __global__ void find_refused(
    const CELL* heights, const FRICTION* frictions, const f64* lengths, i64 rows, i64 pitch,
    const dist* distances, const f64* p, i64 height, i64 width, i64 first, i64 cols, Notes* notes
) {
#ifndef CONTINUOUS
    const Parameters parameters = parameters_of(p);
    const Terrain terrain = {heights, frictions, lengths, rows, pitch};
#endif
    for (i64 k = thread(); k < height * width; k += threads()) {
        i64 row = k / width + 1, col = k % width, at = row * pitch + col + 1;
        if (is_absent(distances[at])) continue;
#ifdef CONTINUOUS
        bool below = (f64)frictions[at] < 1e-30; // as in paths/cost/continuous.py
#else
        bool below = false;
        for (int n = 0; n < 8 * HALO; n++) {
#if !DIAGONAL
            if (n & 1) continue;
#endif
            if (is_absent(distances[at + row_step_16(n) * pitch + col_step_16(n)])) continue;
#if KNIGHTS
            below |= (n < 8 ? cost_of(terrain, parameters, distances, row, at, n)
                            : cost_of_move(terrain, parameters, distances, row, at, n)) < 0;
#else
            below |= cost_of(terrain, parameters, distances, row, at, n) < 0;
#endif
        }
#endif
        if (below) atomicMin(&notes->below, (u64)(first + (row - 1) * cols + col));
    }
}
#endif
