// Loops over the cells of a raster that is one region without sides, a thread block for each tile.
// Needs cells.cuh and neighbours.cuh.
struct Spot {
    i64 at, row, col;
};

// Call `work(spot, inside)` with every cell of this block's tile; all threads call it equally often.
template <typename Work> __device__ __forceinline__ void each_cell(const Region& g, Work work) {
    const int tile_row = blockIdx.x / g.tiles_across, tile_col = blockIdx.x % g.tiles_across;
    const i64 start = tile_start(g, tile_row, tile_col);
    for (int c = threadIdx.x; c < CELLS; c += blockDim.x) {
        const Spot s{
            start + c, tile_row * (i64)TILE + c / TILE, tile_col * (i64)TILE + c % TILE
        };
        work(s, s.row < g.rows && s.col < g.cols);
    }
}

// Find the neighbour in D8 direction k; return false outside of the raster.
__device__ __forceinline__ bool neighbour(const Region& g, const Spot& s, int k, Spot& to) {
    const int down = row_step(k), across = col_step(k);
    to.row = s.row + down, to.col = s.col + across;
    if (to.row < 0 || to.row >= g.rows || to.col < 0 || to.col >= g.cols) return false;
    const int y = (int)(s.row % TILE) + down, x = (int)(s.col % TILE) + across;
    const bool near = (y & (TILE - 1)) == y && (x & (TILE - 1)) == x;
    to.at = near ? s.at + down * TILE + across : cell_at(g, to.row, to.col);
    return true;
}

__device__ __forceinline__ int opposite(int k) { return k ^ 4; }
