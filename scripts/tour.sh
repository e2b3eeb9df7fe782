#!/usr/bin/env bash
# A tour in fifteen tasks of users, from GeoTIFFs, through the command line, Python, xarray, QGIS and the map.
#   scripts/tour.sh [FOLDER]      default: a temporary folder, which is removed
# Each task says how long it took (wall clock and CPU) and checks its results. What is not installed is named.
# $TERRAIN_GPU is the folder of the programs (default: .venv/bin of this checkout, else those on PATH).
set -uo pipefail
repo=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
bin=${TERRAIN_GPU:-$repo/.venv/bin}
if [[ ! -x $bin/terrain-gpu ]]; then
    found=$(command -v terrain-gpu) || {
        echo "terrain-gpu is not installed: bash scripts/demo.sh does it" >&2
        exit 1
    }
    bin=$(dirname -- "$found")
fi
export PATH=$bin:$PATH QT_QPA_PLATFORM=offscreen
python=$bin/python
if [[ -n ${1-} ]]; then
    mkdir -p "$1" && out=$(cd -- "$1" && pwd) || exit 1
else
    out=$(mktemp -d)
    trap 'rm -rf "$out"' EXIT
fi
cd -- "$out" || exit 1
done_=0 failed=0 missing=()
TIMEFORMAT='%R %U %S'

# task TITLE FUNCTION: 77 means that something is not installed; its last line says what.
task() {
    local seconds code
    number=$((number + 1))
    seconds=$({ time "$2" >"$2.log" 2>&1; } 2>&1)
    code=$?
    if ((code == 77)); then
        missing+=("$1: $(tail -1 "$2.log")")
        printf '%2d  %-50s  left out: %s\n' "$number" "$1" "$(tail -1 "$2.log")"
    elif ((code)); then
        failed=$((failed + 1))
        printf '%2d  %-50s  FAILED (%d)\n' "$number" "$1" "$code"
        sed 's/^/      /' "$2.log"
    else
        done_=$((done_ + 1))
        awk -v n="$number" -v t="$1" '{ printf "%2d  %-50s  %6.1f s  %6.1f s of CPU\n", n, t, $1, $2 + $3 }' <<<"$seconds"
    fi
}
number=0

has() {
    "$python" -c "import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, sys.argv[1:])))" "$@"
}

without() { # names what a task lacks, and leaves it out
    echo "$1" && return 77
}

rasters() { # two GeoTIFFs: the sample that ships, warped to metres, and a friction made from it
    "$python" - "$repo/data/jacksboro.tif" <<'PYTHON'
import sys

import numpy as np
import rasterio
from rasterio.warp import Resampling, calculate_default_transform, reproject

with rasterio.open(sys.argv[1]) as dem:
    to, width, height = calculate_default_transform(
        dem.crs, "EPSG:32616", dem.width, dem.height, *dem.bounds, resolution=90
    )
    heights = np.full((height, width), -32768, np.int16)
    reproject(
        dem.read(1), heights, src_transform=dem.transform, src_crs=dem.crs, dst_transform=to,
        dst_crs="EPSG:32616", dst_nodata=-32768, init_dest_nodata=True, resampling=Resampling.bilinear,
    )
form = {
    "driver": "GTiff", "width": width, "height": height, "count": 1, "crs": "EPSG:32616", "transform": to,
}
with rasterio.open("dem.tif", "w", dtype="int16", nodata=-32768, **form) as out:
    out.write(heights, 1)
with rasterio.open("land.tif", "w", dtype="float32", nodata=-1, **form) as out:
    out.write(np.where(heights > 500, 2, 1).astype("float32"), 1)
PYTHON
    cat >huts.geojson <<'JSON'
{"type": "FeatureCollection", "features": [
{"type": "Feature", "properties": {"name": "Mill"}, "geometry": {"type": "Point", "coordinates": [-84.12, 36.48]}},
{"type": "Feature", "properties": {"name": "Gap"}, "geometry": {"type": "Point", "coordinates": [-84.20, 36.60]}},
{"type": "Feature", "properties": {"name": "Ridge"}, "geometry": {"type": "Point", "coordinates": [-84.30, 36.66]}},
{"type": "Feature", "properties": {"name": "Fork"}, "geometry": {"type": "Point", "coordinates": [-84.37, 36.55]}}]}
JSON
}

convert() {
    convert-dataset dem.tif dem.zarr --overwrite && terrain-gpu info dem.zarr &&
        terrain-gpu export dem.zarr back.tif --overwrite && equal dem.tif back.tif
}

filled() {
    terrain-gpu fill dem.tif -o filled.tif --cog --overwrite && holds filled.tif "a >= dem"
}

accumulation() {
    terrain-gpu flow-accumulation dem.tif -o accumulation.tif --overwrite && holds accumulation.tif "a.max() > 10_000"
}

rivers() {
    terrain-gpu streams dem.tif --threshold 5km2 -o streams.tif --lines streams.geojson --overwrite &&
        features streams.geojson 20
}

watershed() {
    terrain-gpu watershed dem.tif --pour-point 734500,4055400 --snap 500 -o watershed.tif --overwrite &&
        holds watershed.tif "a == 1" 0.25
}

slope() {
    rio terrain slope dem.tif -o slope.tif --overwrite && holds slope.tif "(0 <= a) & (a < 90)"
}

walk() {
    compute-sssp dem.tif --source 757984,4040620 --cost tobler -o seconds.tif --overwrite \
        --target 735000,4064000 --path walk.geojson --compress deflate &&
        features walk.geojson 1 && holds seconds.tif "a >= 0"
}

isochrones() {
    terrain-gpu contours seconds.tif hours.geojson --polygons --breaks 3600,7200,14400,21600 --cumulative --overwrite &&
        features hours.geojson 4
}

matrix() {
    terrain-gpu cost-matrix dem.tif --sources huts.geojson --id-field name --cost tobler -o huts.csv --overwrite &&
        (($(wc -l <huts.csv) == 13))
}

network() {
    terrain-gpu least-cost-network dem.tif --sources huts.geojson --id-field name --cost friction --friction land.tif \
        -o trails.geojson --overwrite && features trails.geojson 3
}

tree() {
    compute-mst dem.tif --store tree.zarr -o tree.tif --verify --overwrite && terrain-gpu verify tree.zarr
}

from_python() {
    "$python" - <<'PYTHON'
import numpy as np
import rasterio
import terrain_gpu

with rasterio.open("dem.tif") as dem:
    heights = dem.read(1, masked=True)
found = terrain_gpu.shortest_paths(heights, [(150, 150)], cost="surface", cell_size=90, backlink=True)
steps = found.path(20, 300)
assert len(steps) > 150, len(steps)
assert np.isfinite(found.distance()[20, 300])
assert terrain_gpu.minimum_spanning_tree(heights).edge_count == heights.count() - 1
PYTHON
}

from_xarray() {
    has xarray dask rioxarray || without "pip install 'terrain_gpu[xarray]' rioxarray" || return
    "$python" - <<'PYTHON'
import numpy as np
import rioxarray
import terrain_gpu.xarray

dem = rioxarray.open_rasterio("dem.tif", masked=True).squeeze("band", drop=True)
time = dem.terrain.cost_distance([(150, 150)], cost="tobler")
assert time.dims == ("y", "x") and time.rio.crs == dem.rio.crs
assert np.array_equal(time.notnull(), dem.notnull())
assert float((dem.terrain.fill() - dem).min()) >= 0
PYTHON
}

in_qgis() {
    local qgis
    qgis=$(command -v qgis_process.bin || command -v qgis_process) || without "QGIS: apt install qgis" || return
    rm -rf qgis/plugins/terrain_gpu_processing
    mkdir -p qgis/plugins && cp -r "$repo/qgis/terrain_gpu" qgis/plugins/terrain_gpu_processing
    # The Python of QGIS is not that of terrain_gpu.
    local clean=(env -u PYTHONPATH -u PYTHONHOME -u VIRTUAL_ENV PATH=/usr/bin:/bin HOME="$out/qgis")
    clean+=(QGIS_PLUGINPATH="$out/qgis/plugins" TERRAIN_GPU_PROGRAM="$bin/terrain-gpu" "$qgis")
    "${clean[@]}" plugins enable terrain_gpu_processing &&
        "${clean[@]}" run terrain_gpu:fill -- INPUT="$out/dem.tif" OUTPUT="$out/filled_qgis.tif" &&
        equal filled.tif filled_qgis.tif
}

on_the_map() {
    terrain-gpu map --help || without "terrain-gpu map" || return
    local address page
    terrain-gpu map tree.zarr --no-browser >address.log 2>&1 &
    page=$!
    for _ in {1..100}; do
        address=$(grep -o 'http://[^ ]*' address.log | head -1) && break
        sleep 0.1
    done
    "$python" - "$address" <<'PYTHON'
import json
import sys
import time
import urllib.request


def ask(path, body=None):
    data = None if body is None else json.dumps(body).encode()
    return urllib.request.urlopen(sys.argv[1] + path, data).read()


assert b"<html" in ask("").lower()
assert ask("store/cells/elevation/1/0/0.png").startswith(b"\x89PNG")
told = json.loads(ask("runs", {"kind": "distance", "cost": "tobler", "places": [[150, 150]]}))
end = time.monotonic() + 120
while told["state"] == "running":
    assert time.monotonic() < end, told
    time.sleep(0.2)
    told = json.loads(ask(f"runs/{told['run']}"))
assert told["state"] == "done", told
PYTHON
    local code=$?
    kill "$page" && wait "$page"
    return "$code"
}

pictures() {
    has matplotlib || without "pip install 'terrain_gpu[plot]'" || return
    "$python" - <<'PYTHON'
import json

import matplotlib
import numpy as np
import rasterio
from rasterio.warp import transform_geom

matplotlib.use("agg")
from matplotlib import pyplot as plt
from matplotlib.colors import LightSource

with rasterio.open("dem.tif") as dem:
    heights, bounds, crs = dem.read(1, masked=True), dem.bounds, dem.crs
shade = LightSource().hillshade(heights.filled(heights.min()), vert_exag=2, dx=90, dy=90)
extent = bounds.left, bounds.right, bounds.bottom, bounds.top
figure, axes = plt.subplots(2, 3, figsize=(13, 8), layout="constrained")


def raster(axis, title, file, change=lambda a: a, **how):
    with rasterio.open(file) as opened:
        cells = opened.read(1, masked=True)
    axis.set_title(title)
    axis.set_axis_off()
    axis.imshow(shade, cmap="gray", extent=extent)
    axis.imshow(np.ma.masked_invalid(change(cells)), extent=extent, alpha=0.6, **how)


def lines(axis, file, **how):
    with open(file) as opened:
        found = json.load(opened)
    axis.set_autoscale_on(False)
    for feature in found["features"]:
        if not feature["geometry"]:  # a stream of one cell
            continue
        shape = transform_geom("EPSG:4326", crs, feature["geometry"])
        parts = shape["coordinates"] if "Multi" in shape["type"] else [shape["coordinates"]]
        for part in parts:
            axis.plot(*np.transpose(part)[:2], **how)


first, second, third, fourth, fifth, sixth = axes.flat
raster(first, "Streams", "dem.tif", cmap="terrain")
lines(first, "streams.geojson", color="tab:blue", linewidth=1)
raster(second, "Flow accumulation", "accumulation.tif", np.ma.log10, cmap="Blues")
raster(third, "Slope", "slope.tif", cmap="magma")
raster(fourth, "Hours to walk, and a way", "seconds.tif", lambda a: a / 3600, cmap="viridis")
lines(fourth, "walk.geojson", color="white", linewidth=2)
raster(fifth, "Network of huts", "dem.tif", cmap="terrain")
lines(fifth, "trails.geojson", color="tab:red", linewidth=2)
raster(sixth, "Watershed", "watershed.tif", lambda a: np.ma.masked_equal(a, 0), cmap="autumn")
figure.savefig("tour.png", dpi=90)
PYTHON
}

# Checks.

equal() { # two rasters with the same cells and place
    "$python" - "$@" <<'PYTHON'
import sys, numpy as np, rasterio
one, two = (rasterio.open(file) for file in sys.argv[1:])
assert (one.crs, one.transform) == (two.crs, two.transform)
assert np.array_equal(one.read(1), two.read(1))
PYTHON
}

holds() { # RASTER CONDITION [SHARE]: where the raster `a` has a value, as it does in this share of the cells of `dem`
    "$python" - "$1" "$2" "${3-0.8}" <<'PYTHON'
import sys, numpy as np, rasterio
with rasterio.open("dem.tif") as opened, rasterio.open(sys.argv[1]) as made:
    assert (opened.crs, opened.transform, opened.shape) == (made.crs, made.transform, made.shape)
    dem, a = opened.read(1, masked=True), np.ma.masked_invalid(made.read(1, masked=True))
assert a.count() > float(sys.argv[3]) * dem.count()
assert np.ma.all(eval(sys.argv[2])), sys.argv[2]
PYTHON
}

features() { # FILE.geojson LEAST
    "$python" -c 'import json, sys; assert len(json.load(open(sys.argv[1]))["features"]) >= int(sys.argv[2])' "$@"
}

SECONDS=0
rasters || exit 1
task "Convert a DEM into a store and back" convert
task "Fill depressions into a cloud-optimised GeoTIFF" filled
task "Flow accumulation" accumulation
task "Rivers as a raster and as lines" rivers
task "The watershed of a gauge" watershed
task "Slope, with rio" slope
task "Walking time, and the way to one place" walk
task "How far one gets in one, two, four, six hours" isochrones
task "Hours between all huts, as a table" matrix
task "A network of trails between the huts" network
task "The spanning tree, proven" tree
task "Arrays in Python" from_python
task "DataArrays of xarray" from_xarray
task "The toolbox of QGIS" in_qgis
task "The map in the browser" on_the_map
pictures >pictures.log 2>&1
case $? in
    0) echo "    pictures: $out/tour.png" ;;
    77) missing+=("pictures: $(tail -1 pictures.log)") ;;
    *) failed=$((failed + 1)) && cat pictures.log ;;
esac
echo "$done_ of $number tasks done, $failed failed, ${#missing[@]} parts not installed, $SECONDS s"
((${#missing[@]})) && printf '    missing for %s\n' "${missing[@]}"
((failed == 0))
