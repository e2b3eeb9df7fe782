// The cells that paths run over, padded: see paths.cu. After costs.cuh and steps.cuh.

struct Terrain {
    const CELL* heights;
    const FRICTION* frictions;
    const f64* lengths; // of the steps E, diagonal, S from each padded row; three arrays
    i64 rows, pitch;    // padded
};

// Whether the step from the neighbour in direction k to the cell at `at` gives its exact distance.
__device__ __forceinline__ bool is_tight(
    const Terrain& t, const Parameters& p, const dist* distances, i64 row, i64 at, int k, dist here,
    dist there
) {
    int dy = row_step(k), dx = col_step(k);
    i64 other = at + dy * t.pitch + dx;
#if !CORNERS
    bool beside = is_absent(distances[at + dx]) && is_absent(distances[at + dy * t.pitch]);
    if (dx && dy && beside) return false;
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
    return join(there, edge(p, a, b, fa, fb, length)) == here;
}
