// The rim cells of a tile of the distance index, and where its cells lie. Macro: TILE, its side.
constexpr int CELLS = TILE * TILE;
constexpr int RIM = 4 * TILE - 4;

// Rim cells are numbered clockwise from the upper left corner.
__device__ __forceinline__ int rim_row(int b) {
    int side = b / (TILE - 1), k = b % (TILE - 1);
    return side == 0 ? 0 : (side == 1 ? k : (side == 2 ? TILE - 1 : TILE - 1 - k));
}
__device__ __forceinline__ int rim_col(int b) {
    int side = b / (TILE - 1), k = b % (TILE - 1);
    return side == 0 ? k : (side == 1 ? TILE - 1 : (side == 2 ? TILE - 1 - k : 0));
}

// Index of a cell by its row and column in a tile. Arrays hold rows of tiles with a ring around.
__device__ __forceinline__ i64 place(i64 pitch, i64 across, i64 tile, i64 row, i64 col) {
    return (tile / across * TILE + 1 + row) * pitch + tile % across * TILE + 1 + col;
}
