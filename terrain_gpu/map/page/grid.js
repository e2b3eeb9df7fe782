// Cells, coordinates of the CRS, and positions on the map, which count cells east and north.

const METRES_PER_DEGREE = 111_320;

export function gridOf(store) {
  const [dx, , x0, , dy, y0] = store.transform;
  const wide = store.aspect;         // width of a cell over its height
  const right = dx < 0 ? -1 : 1, up = dy > 0 ? 1 : -1;  // where the next column and the next row lie
  const digits = (step) => Math.min(8, Math.max(0, 1 - Math.floor(Math.log10(Math.abs(step)))));
  const point = ([row, col]) => [right * col * wide, up * row];
  const place = ([x, y]) => [up * y, right * x / wide];
  const [x1, y1] = point([store.rows, store.cols]);
  return {
    wide, right, up, point, place,
    extent: [Math.min(0, x1), Math.min(0, y1), Math.max(0, x1), Math.max(0, y1)],
    middle: ([row, col]) => point([row + 0.5, col + 0.5]),
    cellAt(position) {
      const [row, col] = place(position).map(Math.floor);
      return row >= 0 && row < store.rows && col >= 0 && col < store.cols ? [row, col] : null;
    },
    // Coordinates of the CRS at rows and columns, as text, and back.
    text: ([row, col]) => [(x0 + dx * col).toFixed(digits(dx)), (y0 + dy * row).toFixed(digits(dy))],
    placeOf: ([x, y]) => [(y - y0) / dy, (x - x0) / dx],
    // Metres (or units of the CRS) of a step of 1 on the map, east-west.
    length(position) {
      const [row] = place(position);
      const across = store.geographic
        ? METRES_PER_DEGREE * Math.cos((y0 + dy * row) * Math.PI / 180) : store.unit ?? 1;
      return Math.abs(dx) * across / wide;
    },
  };
}
