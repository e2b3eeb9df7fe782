// Cells of a region in the order of shards: block by block, tiles of a block in Z-order.
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

constexpr int TILE = 64;
constexpr int CELLS = TILE * TILE;

struct Region {
    i64 rows, cols;    // of the raster inside the region
    int block_shift;   // log2 of the tiles on a side of a block
    int blocks_across;
    int tiles_across;
    int sides;         // bits: the raster goes on above (1), below (2), left (4), right (8)
    int has_nodata;
    int diagonal;
    const double* per_length;  // 1 / length of the steps in each direction, from each row
};

__device__ __forceinline__ u32 spread(u32 v) {
    v = (v | (v << 8)) & 0x00FF00FFu;
    v = (v | (v << 4)) & 0x0F0F0F0Fu;
    v = (v | (v << 2)) & 0x33333333u;
    return (v | (v << 1)) & 0x55555555u;
}

// Offset of the first cell of a tile.
__device__ __forceinline__ i64 tile_start(const Region& g, int row, int col) {
    int side = (1 << g.block_shift) - 1;
    i64 block = (i64)(row >> g.block_shift) * g.blocks_across + (col >> g.block_shift);
    u32 rank = spread(col & side) | (spread(row & side) << 1);
    return ((block << (2 * g.block_shift)) + rank) * CELLS;
}

__device__ __forceinline__ i64 cell_at(const Region& g, i64 row, i64 col) {
    return tile_start(g, (int)(row / TILE), (int)(col / TILE)) + (row % TILE) * TILE + col % TILE;
}

// Whether a cell has a value: not nodata and, for floats, finite.
template <typename T>
__device__ __forceinline__ bool has_value(T z, T nodata, int has_nodata) {
    return !(has_nodata && z == nodata);
}
template <>
__device__ __forceinline__ bool has_value(float z, float nodata, int has_nodata) {
    return isfinite(z) && !(has_nodata && z == nodata);
}
template <>
__device__ __forceinline__ bool has_value(double z, double nodata, int has_nodata) {
    return isfinite(z) && !(has_nodata && z == nodata);
}

// Rim cells of a tile are numbered along the top row, bottom row, left column, right column.
__device__ __forceinline__ int ring_index(int cell) {
    int row = cell / TILE, col = cell % TILE;
    if (row == 0) return col;
    if (row == TILE - 1) return TILE + col;
    return (col == 0 ? 2 * TILE : 3 * TILE - 2) + row - 1;
}

__device__ __forceinline__ int ring_cell(int k) {
    if (k < TILE) return k;
    if (k < 2 * TILE) return (TILE - 1) * TILE + k - TILE;
    if (k < 3 * TILE - 2) return (k - 2 * TILE + 1) * TILE;
    return (k - (3 * TILE - 2) + 1) * TILE + TILE - 1;
}
