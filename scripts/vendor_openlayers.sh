#!/usr/bin/env bash
# Build terrain_gpu/map/page/ol.js: the parts of OpenLayers that the map uses, as one module.
set -euo pipefail
version=10.11.0 esbuild=0.28.2
page="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)/terrain_gpu/map/page"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-audit --no-fund "ol@$version" "esbuild@$esbuild"
cat > entry.js <<'END'
export {default as Map} from 'ol/Map.js';
export {default as View} from 'ol/View.js';
export {default as Feature} from 'ol/Feature.js';
export {default as TileLayer} from 'ol/layer/Tile.js';
export {default as VectorLayer} from 'ol/layer/Vector.js';
export {default as TileImage} from 'ol/source/TileImage.js';
export {default as VectorSource} from 'ol/source/Vector.js';
export {default as TileGrid} from 'ol/tilegrid/TileGrid.js';
export {default as Projection} from 'ol/proj/Projection.js';
export {default as Draw} from 'ol/interaction/Draw.js';
export {default as LineString} from 'ol/geom/LineString.js';
export {default as Point} from 'ol/geom/Point.js';
export {defaults as controls} from 'ol/control/defaults.js';
export {Circle, Fill, Stroke, Style} from 'ol/style.js';
END
npx esbuild entry.js --bundle --minify --format=esm --outfile="$page/ol.js"
cp node_modules/ol/ol.css "$page/ol.css"
{
    echo "ol.js and ol.css are of OpenLayers $version, with rbush and quickselect, bundled by"
    echo "scripts/vendor_openlayers.sh. Their licences:"
    for part in ol/LICENSE.md rbush/LICENSE quickselect/LICENSE; do
        printf '\n== %s\n\n' "${part%%/*} $(node -p "require('./node_modules/${part%%/*}/package.json').version")"
        cat "node_modules/$part"
    done
} > "$page/OPENLAYERS.txt"
