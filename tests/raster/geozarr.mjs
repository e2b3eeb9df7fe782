// Tells what OpenLayers' source GeoZarr makes of a store: node geozarr.mjs URL LAYER
import TileState from "ol/TileState.js";
import GeoZarr from "ol/source/GeoZarr.js";

const [url, layer] = process.argv.slice(-2);
const source = new GeoZarr({ url, bands: [layer] });
const until = (target, name, done) =>
  new Promise((resolve) => {
    const look = () => done() && resolve();
    target.addEventListener(name, look);
    look();
  });
await until(source, "change", () => source.getState() !== "loading");
if (source.getState() !== "ready") throw source.error_ ?? new Error(source.getState());
const grid = source.tileGrid;
const levels = [];
for (const z of grid.getResolutions().keys()) {
  const tile = source.getTile(z, 0, 0, 1, source.projection);
  tile.load();
  await until(tile, "change", () => [TileState.LOADED, TileState.ERROR].includes(tile.state));
  if (tile.state === TileState.ERROR) throw tile.error_ ?? new Error(`tile ${z}`);
  const [width] = [grid.getTileSize(z)].flat();
  levels.push({ resolution: grid.getResolution(z), width, cells: Array.from(tile.getData()) });
}
const code = source.projection?.getCode?.() ?? source.projection;
const found = JSON.stringify({ code, extent: grid.getExtent(), levels });
process.stdout.write(found, () => process.exit(0));
