#!/usr/bin/env bash
# Check what a user would install. Build sdist and wheel from a fresh clone of the last commit; compare their files
# with git's; install the wheel alone into empty environments, and use it from a folder of its own.
#   scripts/check_release.sh [FOLDER]     keep the two files in FOLDER
# $PYTHONS names the interpreters (default: python3.11 python3.13). Needs network and some minutes; not part of .ci/run.
set -euo pipefail
repo=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
read -ra pythons <<<"${PYTHONS:-python3.11 python3.13}"
unset PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE VIRTUAL_ENV

step() {
    printf '%4d s  %s\n' "$SECONDS" "$*"
}

install() {
    "$1/bin/python" -m pip install --quiet --disable-pip-version-check "${@:2}" 2>"$work/pip.log" ||
        { cat "$work/pip.log" && exit 1; }
}

step "tools"
"${pythons[0]}" -m venv "$work/tools"
install "$work/tools" build twine cffconvert
tool=$work/tools/bin/python

step "clone without tags, as a packager may have it"
[[ -z $(git -C "$repo" status --porcelain) ]] || echo "        uncommitted changes are not checked" >&2
git clone --quiet --depth 1 --no-tags "file://$repo" "$work/clone"
cd "$work/clone"
version=$("$tool" -c 'import re; print(re.search(r"__version__ = \"(.*)\"", open("terrain_gpu/__init__.py").read())[1])')
tag=$(git -C "$repo" tag --points-at HEAD 'v*')
[[ -z $tag || $tag == "v$version" ]] || { echo "the tag is $tag, the version $version" && exit 1; }

step "addresses"
left=$(grep -oHE '[^ (=]*example\.(org|com)[^ ),]*|terrain-gpu-authors' SECURITY.md qgis/terrain_gpu/metadata.txt recipe/recipe.yaml || true)
grep -q '^repository-code:' CITATION.cff || left+=$'\nCITATION.cff: no repository-code'
grep -q '^\[project.urls\]' pyproject.toml || left+=$'\npyproject.toml: no [project.urls]'
relative=$(grep -oE '\]\([^)]*\)' README.md | grep -cvE '\((https?:|#)' || true)
((relative == 0)) || left+=$'\n'"README.md: $relative relative links, which lead nowhere on a package index"
[[ -z $left ]] || echo "$left"
[[ -z $left || -z $tag ]] || exit 1

step "CITATION.cff"
"$work/tools/bin/cffconvert" --validate >"$work/cff.log" 2>&1 || { cat "$work/cff.log" && exit 1; }

step "sdist, and from it the wheel"
"$tool" -m build --outdir "$work/dist" . >"$work/build.log" 2>&1 || { tail -20 "$work/build.log" && exit 1; }
"$tool" -m twine check --strict "$work"/dist/*
wheel=$work/dist/terrain_gpu-$version-py3-none-any.whl
sdist=$work/dist/terrain_gpu-$version.tar.gz

step "files of both"
git ls-files | sort >"$work/tracked"
tar -tzf "$sdist" | sed -n "s|^terrain_gpu-$version/||p" | grep -v '/$' | sort >"$work/in-sdist"
diff <(sort "$work/tracked" <(echo PKG-INFO)) "$work/in-sdist"
"$tool" -m zipfile -l "$wheel" | awk 'NR > 1 { print $1 }' | sort >"$work/in-wheel"
info=terrain_gpu-$version.dist-info
{
    grep '^terrain_gpu/' "$work/tracked"
    sed -n 's|^data/|terrain_gpu/data/|p' "$work/tracked"
    printf "$info/%s\n" METADATA RECORD WHEEL entry_points.txt licenses/LICENSE
} | sort | diff - "$work/in-wheel"
wc -l "$work/in-sdist" "$work/in-wheel" | sed '$d'
(cd "$work/dist" && ls -l --block-size=1 && sha256sum ./*)

cat >"$work/make.py" <<'PYTHON'
"""A DEM of 300 x 400 cells with a sea, a void and a hollow."""
import numpy as np, rasterio

y, x = np.mgrid[:300, :400]
heights = (900 * np.sin(x / 60) * np.cos(y / 45) + x).astype(np.int16)
heights[heights < -200] = -200
heights[100:120, 200:230] = -32768
with rasterio.open(
    "dem.tif", "w", driver="GTiff", width=400, height=300, count=1, dtype="int16", nodata=-32768,
    crs="EPSG:32633", transform=rasterio.transform.from_origin(500_000, 5_000_000, 25, 25),
) as out:
    out.write(heights, 1)
PYTHON
cat >"$work/compare.py" <<'PYTHON'
"""The export equals the DEM; the same results come from Python; the package is the installed one."""
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np, rasterio
import terrain_gpu

assert Path(terrain_gpu.__file__).is_relative_to(sys.prefix), terrain_gpu.__file__
assert version("terrain_gpu") == terrain_gpu.__version__
with rasterio.open("dem.tif") as first, rasterio.open("back.tif") as second:
    assert (first.profile["transform"], first.crs) == (second.profile["transform"], second.crs)
    heights = first.read(1)
    assert np.array_equal(heights, second.read(1))
with rasterio.open("cost.tif") as made:
    costs = made.read(1)
found = terrain_gpu.shortest_paths(np.ma.masked_equal(heights, -32768), [(5, 5)], cost="absdiff")
assert np.array_equal(found.distance(), costs)
PYTHON

for python in "${pythons[@]}"; do
    name=${python##*/} env=$work/env-${python##*/}
    step "$name: the wheel alone in an empty environment"
    "$python" -m venv "$env"
    install "$env" "$wheel"
    "$env/bin/python" -m pip check
    "$env/bin/python" -m pip list --format freeze --disable-pip-version-check | tr '\n' ' '
    du -sm "$env/lib" | awk '{ print "\n        " $1 " MB" }'
    step "$name: use it"
    mkdir "$work/use-$name"
    cd "$work/use-$name"
    (
        export PATH=$env/bin:/usr/bin:/bin
        python -I "$work/make.py"
        convert-dataset dem.tif dem.zarr
        compute-mst dem.zarr --verify
        compute-sssp dem.zarr --source-rowcol 5,5 --cost absdiff -o cost.tif --target-rowcol 290,390 --path path.geojson
        terrain-gpu export dem.zarr back.tif
        terrain-gpu verify dem.zarr
        terrain-gpu demo demo
        rio terrain slope dem.tif -o slope.tif
        python -I "$work/compare.py"
    ) >use.log 2>&1 || { cat use.log && exit 1; }
    tail -3 use.log
done
image() { # where a daemon is
    local builder
    for builder in docker podman; do
        "$builder" info >/dev/null 2>&1 || continue
        step "the image, with $builder"
        "$builder" build --quiet -f "$work/clone/Containerfile" -t terrain_gpu:check "$work/clone"
        "$builder" run --rm terrain_gpu:check --version
        return
    done
    step "left out: the image of Containerfile, as no docker or podman answers"
}
image
if [[ -n ${1-} ]]; then
    cd "$repo" && mkdir -p "$1" && cp "$work"/dist/* "$1"
fi
step "all passed"
