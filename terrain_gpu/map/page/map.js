// The map of a store. Coordinates of the map count cells, east and north: see `point`.

import {
  Circle, Draw, Feature, Fill, LineString, Map, Point, Projection, Stroke, Style, TileGrid,
  TileImage, TileLayer, VectorLayer, VectorSource, View, controls,
} from "./ol.js";
import { layerRow, make } from "./panel.js";
import { draw as drawProfile, withUnits } from "./profile.js";

const $ = (id) => document.getElementById(id);
const TITLES = {
  tobler: "walking time (Tobler)", langmuir: "walking time (Langmuir)",
  surface: "length on the surface", absdiff: "metres up and down", minimax: "highest step",
};
const HINTS = {
  look: "", distance: "The cost from there to everywhere; then move over the map to see paths.",
  barrier: "Click corners; a double click ends the line. Then set a source or run again.",
  watershed: "All that drains through the cell that you click, such as one of a river.",
};

async function ask(path, options) {
  const reply = await fetch(path, options);
  const told = await reply.json();
  if (!reply.ok) throw new Error(told.error);
  return told;
}

const store = await ask("store.json");
const [dx, , x0, , dy, y0] = store.transform;
const wide = store.aspect;         // width of a cell over its height
const right = dx < 0 ? -1 : 1, up = dy > 0 ? 1 : -1;  // where the next column and the next row lie
const point = ([row, col]) => [right * col * wide, up * row];
const [x1, y1] = point([store.rows, store.cols]);
const extent = [Math.min(0, x1), Math.min(0, y1), Math.max(0, x1), Math.max(0, y1)];
const projection = new Projection({ code: "cells", units: "pixels", extent });
const rows = [];                   // of the list of layers
let run = null, barriers = [], source = null, runRows = [], latest = 0;

// -- layers ----------------------------------------------------------------------------------

function tiles(where, what, name, base, version) {
  const resolutions = [];
  for (let factor = store.coarsest; factor >= base; factor /= 2) resolutions.push(factor);
  const tileGrid = new TileGrid({ extent, origin: [0, 0], resolutions, tileSize: [store.tile * wide, store.tile] });
  // Tiles count east and south from the first cell; those before it are -1, -2, ...
  const url = ([z, x, y]) =>
    `${where}/${what}/${name}/${resolutions[z]}/${up < 0 ? y : -1 - y}/${right > 0 ? x : -1 - x}.png?v=${version}`;
  return new TileLayer({
    source: new TileImage({ projection, tileGrid, tileUrlFunction: (at) => at && url(at), transition: 120 }),
  });
}

function addRow(id, title, where, what, name, { shown = false, opacity = 1, base = 1, z = 1 } = {}) {
  const row = { id, title, where, what, name, shown, opacity, base, layers: [] };
  let told = null;
  row.told = () => (told ??= ask(`${where}/legend/${name}`));
  row.show = () => {
    if (!row.layers.length && row.shown) {
      const version = store.layers.find((layer) => layer.name === name)?.version ?? "";
      row.layers = what.map((one) => tiles(where, one, name, base, version));
      for (const layer of row.layers) {
        layer.setZIndex(z);
        map.addLayer(layer);
      }
    }
    for (const layer of row.layers) {
      layer.setVisible(row.shown);
      layer.setOpacity(row.opacity);
    }
    remember();
  };
  row.item = layerRow(row, row.show, what.includes("shade") ? null
    : async () => ({ ...(await row.told()), lines: what.includes("lines") }));
  rows.push(row);
  row.show();
  return row;
}

function dropRow(row) {
  for (const layer of row.layers) map.removeLayer(layer);
  row.shown = false;
  row.item.remove();
  rows.splice(rows.indexOf(row), 1);
}

// -- the map ---------------------------------------------------------------------------------

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const halo = (colour, width) => [
  new Style({ stroke: new Stroke({ color: "#ffffffd0", width: width + 3 }) }),
  new Style({ stroke: new Stroke({ color: colour, width }) }),
];
const lines = new VectorSource(), path = new VectorSource(), marks = new VectorSource();
const map = new Map({
  target: "map",
  controls: controls({ rotate: false, attribution: false }),
  view: new View({
    projection, extent, constrainOnlyCenter: true, showFullExtent: true, enableRotation: false,
    minResolution: 1 / 16, maxResolution: store.coarsest * 4, constrainResolution: false,
  }),
  layers: [
    new VectorLayer({ source: lines, zIndex: 100, style: halo("#3d2b1f", 3.5) }),
    new VectorLayer({ source: path, zIndex: 101, style: () => halo(css("--path"), 3) }),
    new VectorLayer({
      source: marks, zIndex: 102,
      style: () => new Style({
        image: new Circle({
          radius: 7, fill: new Fill({ color: css("--path") }), stroke: new Stroke({ color: "#fff", width: 2.5 }),
        }),
      }),
    }),
  ],
});
const view = map.getView();
const drawing = new Draw({ source: lines, type: "LineString" });
drawing.setActive(false);
map.addInteraction(drawing);

const cellAt = ([x, y]) => {
  const at = [Math.floor(up * y), Math.floor(right * x / wide)];
  return at[0] >= 0 && at[0] < store.rows && at[1] >= 0 && at[1] < store.cols ? at : null;
};
const places = ([row, col]) => `${(x0 + dx * (col + 0.5)).toFixed(digits(dx))}, `
  + `${(y0 + dy * (row + 0.5)).toFixed(digits(dy))}`;
const digits = (step) => Math.min(8, Math.max(0, 1 - Math.floor(Math.log10(Math.abs(step)))));

// -- what is under the pointer ---------------------------------------------------------------

let asked = 0, waiting = null;

async function look(coordinate) {
  const at = coordinate && cellAt(coordinate);
  const turn = ++asked;
  if (!at) {
    $("readout").textContent = "";
    return;
  }
  const wanted = {};
  for (const row of rows) if (row.shown) (wanted[row.where] ??= new Set()).add(row.name);
  const texts = [];
  try {
    for (const [where, names] of Object.entries(wanted)) {
      const found = await ask(`${where}/values/${at.join("/")}?names=${[...names].join(",")}`);
      for (const [name, value] of Object.entries(found)) {
        const { units } = await rows.find((row) => row.where === where && row.name === name).told();
        texts.push(`${name.replaceAll("_", " ")} ${value === null ? "–" : withUnits(value, units)}`);
      }
    }
    if (turn !== asked) return;
    $("readout").textContent = `${places(at)}   ${texts.join(", ")}`;
    if (run?.kind === "distance" && run.state === "done") await showPath(at, turn);
  } catch {
    // the run has been replaced meanwhile
  }
}

async function showPath(at, turn) {
  const found = await ask(`runs/${run.run}/path/${at.join("/")}`);
  if (turn !== asked) return;
  path.clear();
  $("profile").hidden = true;
  if (!found) return;
  path.addFeature(new Feature(new LineString(found.cells.map(point))));
  const { units } = await runRows[0].told();
  if (turn !== asked) return;
  drawProfile($("profile"), found, { units, metres: store.metres });
}

map.on("pointermove", (event) => {
  if (event.dragging) return;
  clearTimeout(waiting);
  waiting = setTimeout(look, 25, event.coordinate);
});
map.on("moveend", () => {
  if (document.activeElement === $("map") && $("map").matches(":focus-visible")) look(view.getCenter());
  remember();
});
$("map").addEventListener("focus", () => {
  if ($("map").matches(":focus-visible")) look(view.getCenter());
});

// -- runs ------------------------------------------------------------------------------------

const tool = () => document.querySelector("input[name=tool]:checked").value;

function setTool(name) {
  document.querySelector(`input[name=tool][value=${name}]`).checked = true;
  drawing.setActive(name === "barrier");
  $("hint").textContent = HINTS[name];
}
for (const input of document.querySelectorAll("input[name=tool]")) {
  input.addEventListener("change", () => setTool(input.value));
}

function use(coordinate) {
  const at = cellAt(coordinate);
  if (!at || !["distance", "watershed"].includes(tool())) return;
  source = at;
  start(tool());
}
map.on("singleclick", (event) => use(event.coordinate));
$("map").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.target !== $("map")) return;
  if (tool() === "barrier") drawing.appendCoordinates([view.getCenter()]);
  else use(view.getCenter());
});
addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  if (tool() === "barrier") {
    if (event.target === $("map")) drawing.finishDrawing();
    else drawing.abortDrawing();
  }
  setTool("look");
});

drawing.on("drawend", (event) => {
  barriers.push(event.feature.getGeometry().getCoordinates().map(([x, y]) => [up * y, right * x / wide]));
  $("clear").disabled = false;
  $("again").disabled = !source;
});
$("clear").addEventListener("click", () => {
  lines.clear();
  barriers = [];
  $("clear").disabled = true;
});
$("again").addEventListener("click", () => start("distance"));
$("cancel").addEventListener("click", () => run && ask(`runs/${run.run}`, { method: "DELETE" }));

async function start(kind) {
  $("error").textContent = "";
  const job = { kind, places: [source], factor: 1 };
  if (kind === "distance") {
    Object.assign(job, { cost: $("cost").value, factor: Number($("level").value), barriers });
  }
  try {
    await follow(await ask("runs", { method: "POST", body: JSON.stringify(job) }));
  } catch (error) {
    $("error").textContent = error.message;
  }
}

function forget() {
  ++asked; // a path of the run before may still be on its way
  for (const row of runRows) dropRow(row);
  runRows = [];
  path.clear();
  $("profile").hidden = true;
}

// Show a run until it ends, and then its result.
async function follow(begun) {
  const mine = ++latest;
  run = begun;
  forget();
  marks.clear();
  source = run.places[0];
  marks.addFeature(new Feature(new Point(point([source[0] + 0.5, source[1] + 0.5]))));
  $("run").hidden = false;
  while (run.state === "running") {
    $("phase").textContent = run.phase ?? "Starting";
    if (run.total) {
      $("progress").max = run.total;
      $("progress").value = run.done;
    } else {
      $("progress").removeAttribute("value");
    }
    await new Promise((done) => setTimeout(done, 150));
    const told = await ask(`runs/${begun.run}`);
    if (mine !== latest) return;
    run = told;
  }
  $("run").hidden = true;
  $("again").disabled = run.kind !== "distance";
  if (run.state === "failed") $("error").textContent = run.error;
  if (run.state !== "done") return;
  const where = `runs/${run.run}`, settings = { shown: true, base: run.factor, z: 50 };
  if (run.kind === "distance") {
    const title = `Cost: ${TITLES[run.cost] ?? run.cost}`;
    runRows = [
      addRow("run", title, where, ["cells", "lines"], run.layer, { ...settings, opacity: 0.7 }),
    ];
  } else {
    runRows = [addRow("run", "Upstream of the click", where, ["cells"], run.layer, { ...settings, opacity: 0.6 })];
  }
  $("layers").prepend(runRows[0].item);
  remember();
}

// -- permalink -------------------------------------------------------------------------------

let ready = false;

function remember() {
  if (!ready) return;
  const [x, y] = view.getCenter();
  const shown = rows.filter((row) => row.shown && row.id !== "run").map((row) => `${row.id}:${row.opacity}`);
  const parts = { x: x.toFixed(1), y: (-y).toFixed(1), cell: view.getResolution().toPrecision(4) };
  const words = new URLSearchParams({ ...parts, layers: shown.join(",") });
  if (run?.state === "done") words.set("run", run.run);
  history.replaceState(null, "", `#${words}`);
}

function wanted() {
  const words = new URLSearchParams(location.hash.slice(1));
  const numbers = ["x", "y", "cell"].map((key) => Number.parseFloat(words.get(key)));
  const layers = words.has("layers")
    ? Object.fromEntries(words.get("layers").split(",").filter(Boolean).map((one) => {
      const [id, opacity] = one.split(":");
      return [id, Math.min(1, Math.max(0, Number(opacity) || 0))];
    }))
    : null;
  return { place: numbers.every(Number.isFinite) ? numbers : null, layers, run: words.get("run") };
}

// -- begin -----------------------------------------------------------------------------------

function begin() {
  const link = wanted();
  document.title = `${store.name} – terrain_gpu`;
  $("title").textContent = store.name;
  $("facts").textContent = `${store.rows.toLocaleString("en")} × ${store.cols.toLocaleString("en")} cells`
    + (store.crs ? `, ${store.crs}` : "");
  const size = map.getSize(), left = innerWidth > 700 ? 310 : 0;
  view.fit(extent, { size, padding: [14, 14, 14, left] });
  if (link.place) {
    view.setCenter([link.place[0], -link.place[1]]);
    view.setResolution(link.place[2]);
  }
  const setting = (id, opacity, usual) => link.layers
    ? { shown: id in link.layers, opacity: link.layers[id] ?? opacity }
    : { shown: usual, opacity };
  const readable = store.layers.filter((layer) => !layer.unreadable);
  const first = store.heights ?? readable[0]?.name;
  const list = readable.map(({ name }, k) => addRow(
    name, name.replaceAll("_", " "), "store", ["cells"], name,
    { ...setting(name, name === store.heights ? 0.5 : 0.7, name === first), z: name === first ? 2 : 3 + k },
  ));
  if (store.heights) {
    list.push(addRow("hillshade", "hillshade", "store", ["shade"], store.heights, { ...setting("hillshade", 1, true), z: 1 }));
  }
  $("layers").append(...list.map((row) => row.item));
  beginRuns();
  ready = true;
  const old = store.runs.find((one) => String(one.run) === link.run);
  if (old) follow(old);
}

function beginRuns() {
  for (const cost of store.costs) $("cost").append(make("option", { value: cost }, TITLES[cost] ?? cost));
  const cells = store.rows * store.cols;
  for (const factor of store.levels) {
    const title = factor === 1 ? "every cell" : `1 : ${factor}`;
    const count = (cells / factor ** 2).toLocaleString("en", { notation: "compact", maximumSignificantDigits: 2 });
    $("level").append(make("option", { value: factor }, `${title} (${count} cells)`));
  }
  $("level").value = store.levels.find((factor) => cells / factor ** 2 <= 5e6) ?? store.levels.at(-1);
  if (store.no_runs) {
    $("hint").textContent = store.no_runs;
    for (const one of $("runs").querySelectorAll("input, select, button")) one.disabled = true;
  }
  if (!store.directions) {
    const input = document.querySelector("input[value=watershed]");
    input.disabled = true;
    input.parentElement.title = "This needs flow directions: terrain-gpu flow-direction";
  }
}

begin();
