// Steps between neighbours, and what is the lesser of two distances.

// Of the neighbour in D8 direction k: E, SE, S, SW, W, NW, N, NE.
__device__ constexpr int row_step(int k) { return k >= 1 && k <= 3 ? 1 : (k >= 5 ? -1 : 0); }
__device__ constexpr int col_step(int k) {
    return k <= 1 || k == 7 ? 1 : (k >= 3 && k <= 5 ? -1 : 0);
}

// a where b is NaN.
__device__ __forceinline__ dist lesser(dist a, dist b) { return b < a ? b : a; }
