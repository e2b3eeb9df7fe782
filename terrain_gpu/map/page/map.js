// The map of a store.

import {
  Circle, Draw, Feature, Fill, LineString, Map, Point, Projection, Stroke, Style, TileGrid,
  TileImage, TileLayer, VectorLayer, VectorSource, View, controls,
} from "./ol.js";
import { gridOf } from "./grid.js";
import { layerRow, make } from "./panel.js";
import { draw as drawProfile, number, withUnits } from "./profile.js";
import { showResult } from "./result.js";

const $ = (id) => document.getElementById(id);
const TITLES = {
  tobler: "walking time (Tobler)", langmuir: "walking time (Langmuir)",
  surface: "length on the surface", absdiff: "metres up and down", minimax: "highest step",
};
const HINTS = {
  look: "Shows the values of a cell and, after a run from a source, the path to it.",
  distance: "Computes the cost from there to every cell.",
  barrier: "Sets corners of a line; a double click ends it. Then set a source or run again.",
  watershed: "Finds all that drains through a cell, such as one of a river, and the flow path from it.",
};

async function ask(path, options) {
  const reply = await fetch(path, options).catch(() => {
    throw new Error("The map does not answer. Start it again, and open its new address.");
  });
  const told = await reply.json();
  if (!reply.ok) throw new Error(told.error);
  return told;
}

const tell = (text) => { $("error").textContent = text; };
const store = await ask("store.json");
const grid = gridOf(store);
const { extent, point, middle, cellAt, right, up, wide } = grid;
const projection = new Projection({ code: "cells", units: "pixels", extent });
const rows = [];                   // of the list of layers
const heightsTold = () => rows.find((row) => row.name === store.heights).told();
let run = null, barriers = [], sources = [], pins = [], runRows = [], latest = 0;

// -- layers ----------------------------------------------------------------------------------

function tiles(where, what, name, base, version) {
  const resolutions = [];
  for (let factor = store.coarsest; factor >= base; factor /= 2) resolutions.push(factor);
  const tileGrid = new TileGrid({ extent, origin: [0, 0], resolutions, tileSize: [store.tile * wide, store.tile] });
  // Tiles count east and south from the first cell; those before it are -1, -2, ...
  const url = ([z, x, y]) =>
    `${where}/${what}/${name}/${resolutions[z]}/${up < 0 ? y : -1 - y}/${right > 0 ? x : -1 - x}.png?v=${version}`;
  const layer = new TileLayer({
    source: new TileImage({ projection, tileGrid, tileUrlFunction: (at) => at && url(at), transition: 120 }),
  });
  // Cells larger than a pixel have sharp edges.
  layer.on("prerender", ({ context }) => { context.imageSmoothingEnabled = view.getResolution() >= base; });
  layer.getSource().on("tileloaderror", () => ask("store.json").catch((error) => tell(error.message)));
  return layer;
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
  const legend = async () => ({ ...(await row.told()), lines: what.includes("lines"), title });
  const failed = (error) => { if (rows.includes(row)) tell(error.message); };
  row.item = layerRow(row, row.show, what.includes("shade") ? null : legend, failed);
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
const dot = (radius, fill, edge) => new Style({
  image: new Circle({
    radius, fill: new Fill({ color: fill }), stroke: new Stroke({ color: edge, width: 2.5 }),
  }),
});
const [lines, outline, path, spot, marks] = Array.from({ length: 5 }, () => new VectorSource());
const map = new Map({
  target: "map",
  controls: controls({ rotate: false, attribution: false }),
  view: new View({
    projection, extent, constrainOnlyCenter: true, showFullExtent: true, enableRotation: false,
    minResolution: 1 / 16, maxResolution: store.coarsest * 4, constrainResolution: false,
  }),
  layers: [
    new VectorLayer({ source: lines, zIndex: 100, style: halo("#3d2b1f", 3.5) }),
    new VectorLayer({ source: outline, zIndex: 99, style: halo("#1a5a9e", 2) }),
    new VectorLayer({ source: path, zIndex: 101, style: () => halo(css("--path"), 3) }),
    new VectorLayer({ source: spot, zIndex: 103, style: () => dot(5, css("--ink"), "#fff") }),
    new VectorLayer({
      source: marks, zIndex: 102,
      // Sources are filled; pins are rings.
      style: (mark) => (mark.get("pin") ? dot(6, "#fff", css("--path")) : dot(7, css("--path"), "#fff")),
    }),
  ],
});
const view = map.getView();
const drawing = new Draw({ source: lines, type: "LineString" });
drawing.setActive(false);
map.addInteraction(drawing);

function drawMarks() {
  marks.clear();
  for (const at of sources) marks.addFeature(new Feature(new Point(middle(at))));
  for (const at of pins) marks.addFeature(new Feature({ geometry: new Point(middle(at)), pin: true }));
  $("unpin").disabled = !pins.length;
}

// Show the whole raster beside the panel; on a narrow screen above it.
const narrow = matchMedia("(max-width: 700px)");

function fit() {
  const panel = $("panel").getBoundingClientRect();
  const padding = narrow.matches ? [60, 14, innerHeight - panel.top + 14, 14] : [14, 60, 14, panel.right + 14];
  view.fit(extent, { size: map.getSize(), padding });
}
$("fit").addEventListener("click", fit);

function fold(folded) {
  $("panel").classList.toggle("folded", folded);
  $("fold").setAttribute("aria-expanded", !folded);
  $("fold").textContent = folded ? "More" : "Less";
}
$("fold").addEventListener("click", () => fold(!$("panel").classList.contains("folded")));
fold(narrow.matches);
narrow.addEventListener("change", () => fold(narrow.matches));

// A scale bar of a round length, at most 110 pixels wide.
function drawScale() {
  const pixel = view.getResolution() * grid.length(view.getCenter());
  const tens = 10 ** Math.floor(Math.log10(110 * pixel));
  const length = tens * (110 * pixel >= 5 * tens ? 5 : 110 * pixel >= 2 * tens ? 2 : 1);
  $("scale").style.width = `${length / pixel}px`;
  $("scale").textContent = !store.unit ? number(length)
    : length >= 1000 ? `${number(length / 1000)} km` : `${number(length)} m`;
}

// -- what is under the pointer, and at pins --------------------------------------------------

let looks = 0, paths = 0, waiting = null;

// Values at a place; they are shown unless another place is asked for, or the run is replaced.
async function look(coordinate) {
  const at = coordinate && cellAt(coordinate), turn = ++looks;
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
        if (turn !== looks) return;
        const { units } = await rows.find((row) => row.where === where && row.name === name).told();
        texts.push(`${name.replaceAll("_", " ")} ${value === null ? "–" : withUnits(value, units)}`);
      }
    }
    if (turn !== looks) return;
    const place = grid.text([at[0] + 0.5, at[1] + 0.5]).join(", ");
    $("readout").textContent = `${place}   ${texts.join(", ")}`;
  } catch (error) {
    if (turn === looks) tell(error.message);
  }
}

// The same while the pointer moves; without pins, also the path.
function hover(coordinate) {
  look(coordinate);
  const at = cellAt(coordinate);
  if (at && !pins.length) showPaths([at]);
}

function forgetPaths() {
  ++paths; // one of the run before may still be on its way
  path.clear();
  spot.clear();
  $("profile").hidden = true;
}

// The profile; what it points at is marked on the map.
async function showProfile(way, known) {
  const turn = paths, { units } = await heightsTold();
  if (turn !== paths) return;
  drawProfile($("profile"), way, { ...known, heights: units, metres: store.metres }, (place) => {
    spot.clear();
    if (place) spot.addFeature(new Feature(new Point(point(place))));
  });
}

// The paths of this run to cells, and the profile of the last one.
async function showPaths(cells) {
  const turn = ++paths, mine = run;
  if (mine?.kind !== "distance" || mine.state !== "done") return;
  try {
    const { units } = await runRows[0].told();
    const found = await Promise.all(cells.map((at) => ask(`runs/${mine.run}/path/${at.join("/")}`)));
    if (turn !== paths) return;
    forgetPaths();
    for (const one of found) {
      if (one) path.addFeature(new Feature(new LineString(one.cells.map(point))));
    }
    const last = found.at(-1);
    if (last) await showProfile(last, { units });
    else if (pins.length) tell("No path leads there.");
  } catch (error) {
    if (turn === paths) tell(error.message);
  }
}

function pin(at) {
  pins = $("several").checked ? [...pins, at] : [at];
  drawMarks();
  look(middle(at));
  showPaths(pins);
}

function unpin() {
  pins = [];
  drawMarks();
  forgetPaths();
}
$("unpin").addEventListener("click", unpin);

map.on("pointermove", (event) => {
  if (event.dragging) return;
  clearTimeout(waiting);
  waiting = setTimeout(hover, 25, event.coordinate);
});
$("map").addEventListener("pointerleave", (event) => {
  clearTimeout(waiting);
  if (event.pointerType === "mouse" && pins.length) look(middle(pins.at(-1)));
});
map.on("moveend", () => {
  if (document.activeElement === $("map") && $("map").matches(":focus-visible")) hover(view.getCenter());
  drawScale();
  remember();
});
$("map").addEventListener("focus", () => {
  if ($("map").matches(":focus-visible")) hover(view.getCenter());
});

// -- what a click does -----------------------------------------------------------------------

const tool = () => document.querySelector("input[name=tool]:checked").value;

function setTool(name) {
  document.querySelector(`input[name=tool][value=${name}]`).checked = true;
  drawing.setActive(name === "barrier");
  $("map").dataset.tool = name;
  $("hint").textContent = store.no_runs ?? HINTS[name];
  showSettings();
}

// Only the settings of what a click does; those of the last run while it looks.
function showSettings() {
  const kind = tool() === "look" ? run?.kind : tool();
  for (const id of ["cost", "level", "snap"]) {
    const of = id === "snap" ? kind === "watershed" : kind === "distance" || kind === "barrier";
    const field = $(id).closest("#settings > *");
    field.hidden = field.previousElementSibling.hidden = !of;
  }
}
for (const input of document.querySelectorAll("input[name=tool]")) {
  input.addEventListener("change", () => setTool(input.value));
}

function use(coordinate) {
  const at = cellAt(coordinate), name = tool();
  tell(at ? "" : "That is outside the raster.");
  if (!at) return;
  if (name === "look") pin(at);
  else if (name === "barrier") drawing.appendCoordinates([coordinate]);
  else {
    const more = name === "distance" && $("several").checked && run?.kind === "distance";
    start(name, more ? [...sources, at] : [at]);
  }
}
map.on("singleclick", (event) => tool() !== "barrier" && use(event.coordinate));
$("map").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && event.target === $("map")) use(view.getCenter());
});
$("go").addEventListener("submit", (event) => {
  event.preventDefault();
  const words = $("typed").value.trim().split(/[\s,;]+/), numbers = words.map(Number);
  if (words.length !== 2 || !numbers.every(Number.isFinite)) {
    tell("Type two numbers: x, y in the raster's CRS.");
    return;
  }
  const position = point(grid.placeOf(numbers));
  if (cellAt(position)) view.setCenter(position);
  use(position);
});
addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  if (tool() === "barrier") {
    if (event.target === $("map")) drawing.finishDrawing();
    else drawing.abortDrawing();
  } else if (tool() === "look") unpin();
  setTool("look");
});

drawing.on("drawstart", () => { $("finish").hidden = false; });
drawing.on("drawabort", () => { $("finish").hidden = true; });
drawing.on("drawend", (event) => {
  $("finish").hidden = true;
  barriers.push(event.feature.getGeometry().getCoordinates().map(grid.place));
  $("clear").disabled = false;
  $("again").disabled = !sources.length;
});
$("finish").addEventListener("click", () => drawing.finishDrawing());
$("clear").addEventListener("click", () => {
  lines.clear();
  barriers = [];
  $("clear").disabled = true;
});

// -- runs ------------------------------------------------------------------------------------

$("again").addEventListener("click", () => start("distance", sources));
$("cancel").addEventListener("click", () => {
  if (run) ask(`runs/${run.run}`, { method: "DELETE" }).catch((error) => tell(error.message));
});

async function start(kind, places) {
  const turn = ++latest, job = { kind, places, factor: 1 };
  tell("");
  forget();
  sources = places;
  drawMarks();
  if (!$("several").checked) setTool("look");
  if (kind === "distance") {
    Object.assign(job, { cost: $("cost").value, factor: Number($("level").value), barriers });
  } else {
    job.snap = Number($("snap").value);
  }
  try {
    const begun = await post("runs", job);
    if (turn === latest) await follow(begun, turn);
  } catch (error) {
    if (turn !== latest) return;
    $("run").hidden = true;
    tell(error.message);
  }
}

// Nothing of the run before may stay, nor arrive later.
function forget() {
  ++looks;
  $("readout").textContent = "";
  forgetPaths();
  outline.clear();
  $("result").hidden = true;
  run = null;
  for (const row of runRows) dropRow(row);
  runRows = [];
}

// Show a run until it ends, and then its result, unless another one has been started.
async function follow(begun, turn) {
  run = begun;
  sources = run.places;
  drawMarks();
  showSettings();
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
    if (turn !== latest) return;
    run = told;
  }
  $("run").hidden = true;
  $("again").disabled = run.kind !== "distance";
  if (run.state === "failed") tell(run.error);
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
  if (pins.length) {
    look(middle(pins.at(-1)));
    showPaths(pins);
  }
  remember();
  const facts = run.kind === "distance" ? [] : await showCatchment(where, turn);
  if (turn === latest) showResult($("result"), run, facts, { write, keep, tell });
}

// The outline and the flow path; returns the statistics.
async function showCatchment(where, turn) {
  const found = await ask(`${where}/catchment`);
  if (turn !== latest) return [];
  sources = [found.outlet];
  drawMarks();
  for (const ring of found.outline.flat()) outline.addFeature(new Feature(new LineString(ring.map(point))));
  if (found.down) {
    ++paths;
    path.addFeature(new Feature(new LineString(found.down.cells.map(point))));
    await showProfile(found.down, { title: "Way down" });
  }
  const { cells, area_km2, lowest, mean, highest } = found.facts;
  const { units } = await heightsTold();
  const area = area_km2 === null ? [] : [["Area", `${number(area_km2, 4)} km²`]];
  const heights = lowest === null ? []
    : [["Elevation", `${number(lowest)} to ${number(highest)}, mean ${withUnits(Math.round(mean * 10) / 10, units)}`]];
  return [...area, ["Cells", number(cells)], ...heights];
}

const post = (path, told) => ask(path, { method: "POST", body: JSON.stringify(told) });

async function write(form) {
  if (run.kind === "distance" && ["gpkg", "geojson"].includes(form) && !pins.length) {
    throw new Error("Click cells first: the file has the paths to them.");
  }
  const { file } = await post(`runs/${run.run}/files`, { form, places: pins });
  make("a", { href: file, download: "" }).click();
}

async function keep(name) {
  await post(`runs/${run.run}/keep`, { name });
  location.reload();
}

// -- permalink -------------------------------------------------------------------------------

let ready = false;

// Coordinates are those of the CRS, so that a link also fits another store of the place.
function remember() {
  if (!ready) return;
  const [x, y] = grid.text(grid.place(view.getCenter()));
  const shown = rows.filter((row) => row.shown && row.id !== "run").map((row) => `${row.id}:${row.opacity}`);
  const scale = (view.getResolution() * Math.abs(store.transform[4])).toPrecision(4);
  const words = new URLSearchParams({ x, y, scale, layers: shown.join(",") });
  if (run?.state === "done") words.set("run", run.run);
  history.replaceState(null, "", `#${words}`);
}

function wanted() {
  const words = new URLSearchParams(location.hash.slice(1));
  const numbers = ["x", "y", "scale"].map((key) => Number.parseFloat(words.get(key)));
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
  beginRuns();
  fit();
  if (link.place) {
    view.setCenter(point(grid.placeOf(link.place)));
    view.setResolution(link.place[2] / Math.abs(store.transform[4]));
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
  // Edges of trees and pour points are codes for other commands: folded away unless shown.
  const internal = ({ name, shown }) => !shown
    && store.layers.some((layer) => layer.name === name && layer.internal);
  $("layers").append(...list.filter((row) => !internal(row)).map((row) => row.item));
  $("internal").append(...list.filter(internal).map((row) => row.item));
  $("internal").parentElement.hidden = !list.some(internal);
  ready = true;
  const old = store.runs.find((one) => String(one.run) === link.run);
  if (old) follow(old, ++latest).catch((error) => tell(error.message));
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
    for (const one of document.querySelectorAll("#tools input:not([value=look]), #settings select")) one.disabled = true;
  }
  if (!store.directions) {
    const input = document.querySelector("input[value=watershed]");
    input.disabled = true;
    input.parentElement.title = "This needs flow directions: terrain-gpu flow-direction";
  }
  // Snapping needs the flow accumulation: where it is missing, it would be computed for each click.
  const step = Math.abs(store.transform[4]) * (store.geographic ? 111_320 : 1);
  $("snap").value = store.accumulation ? Number((3 * step).toPrecision(1)) : 0;
  $("settings").querySelector("i").textContent = store.geographic || store.metres ? "m" : "";
  setTool("look");
}

begin();
