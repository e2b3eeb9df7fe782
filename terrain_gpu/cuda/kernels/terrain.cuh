// The cells that paths run over, padded: see paths.cu. After costs.cuh and steps.cuh.

struct Terrain {
    const CELL* heights;
    const FRICTION* frictions;
    const f64* lengths; // of the steps E, diagonal, S from each padded row; three arrays, and two
                        // of knight's moves to the next row, and to the one after it
    i64 rows, pitch;    // padded
};

#if KNIGHTS && MODEL != HOPS
// As `cost_of`, for the knight's moves, k from 8 to 15.
__device__ __forceinline__ dist cost_of_move(
    const Terrain& t, const Parameters& p, const dist* distances, i64 row, i64 at, int k
) {
    int dy = row_step_16(k), one = k - 8, other = (k - 7) % 8;
    i64 u = at + row_step(one) * t.pitch + col_step(one);
    i64 v = at + row_step(other) * t.pitch + col_step(other);
    if (is_absent(distances[u]) || is_absent(distances[v])) return top();
    f64 length = 0;
#if HAS_LENGTH
    length = t.lengths[(dy == 1 || dy == -1 ? 3 : 4) * t.rows + (dy < 0 ? row + dy : row)];
#endif
    i64 from = at + dy * t.pitch + col_step_16(k), to = at;
#if REVERSE
    i64 end = from;
    from = to, to = end;
#endif
    const CELL* z = t.heights;
#if HAS_FRICTION
    const FRICTION* f = t.frictions;
#else
    const CELL* f = z;
#endif
    return move_cost(p, z[from], z[to], f[from], f[to], z[u], z[v], f[u], f[v], length);
}

// As `is_tight`, for the knight's moves, k from 8 to 15.
__device__ __forceinline__ bool is_tight_move(
    const Terrain& t, const Parameters& p, const dist* distances, i64 row, i64 at, int k, dist here,
    dist there
) {
    return join(there, cost_of_move(t, p, distances, row, at, k)) == here;
}
#endif

// Cost of the step from the neighbour in direction k to the cell at `at`, both present; top() if
// there is none.
__device__ __forceinline__ dist cost_of(
    const Terrain& t, const Parameters& p, const dist* distances, i64 row, i64 at, int k
) {
    int dy = row_step(k), dx = col_step(k);
    i64 other = at + dy * t.pitch + dx;
#if !CORNERS
    bool beside = is_absent(distances[at + dx]) && is_absent(distances[at + dy * t.pitch]);
    if (dx && dy && beside) return top();
#endif
    f64 length = 0;
#if HAS_LENGTH
    length = t.lengths[(dx && dy ? 1 : (dy ? 2 : 0)) * t.rows + (dy < 0 ? row - 1 : row)];
#endif
#if REVERSE
    i64 from = at, to = other;
#else
    i64 from = other, to = at;
#endif
    value a = (value)t.heights[from], b = (value)t.heights[to];
#if HAS_FRICTION
    f64 fa = (f64)t.frictions[from], fb = (f64)t.frictions[to];
#else
    f64 fa = (f64)a, fb = (f64)b;
#endif
    return edge(p, a, b, fa, fb, length);
}

// Whether the step from the neighbour in direction k to the cell at `at` gives its exact distance,
// less than top().
__device__ __forceinline__ bool is_tight(
    const Terrain& t, const Parameters& p, const dist* distances, i64 row, i64 at, int k, dist here,
    dist there
) {
    return join(there, cost_of(t, p, distances, row, at, k)) == here;
}
