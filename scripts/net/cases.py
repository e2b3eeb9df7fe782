"""Every command of the net, as a user would type it, with the store that it starts from.

A command line that starts with `-` is run in one process with one thread only; all others in every
mode. Stores are made by the lines of STORES, in one process.
"""

# ruff: noqa: E501

from __future__ import annotations

CONVERT = "convert-dataset {}.tif s.zarr --block-size 64"
LAYERS = "\n".join(
    f"{CONVERT.format(name)} --layer {name}" for name in ("friction", "landcover", "walls", "rain")
)

STORES = {
    "nothing": "",
    "heights": CONVERT.format("dem"),
    "inputs": f"{CONVERT.format('dem')}\n{LAYERS}",
    "whole": f"{CONVERT.format('whole')}\nconvert-dataset walls.tif s.zarr --layer walls",
    "globe": CONVERT.format("globe"),
    "tree": f"{CONVERT.format('dem')}\ncompute-mst s.zarr --weight flow",
    "flow": f"""
{CONVERT.format("dem")}
{CONVERT.format("rain")} --layer rain
flow-direction s.zarr
flow-accumulation s.zarr
""",
    "streams": f"""
{CONVERT.format("dem")}
flow-direction s.zarr
flow-accumulation s.zarr
streams s.zarr --threshold 60 --lines streams.geojson
streams s.zarr --threshold 60 --order link --into links
""",
    "distances": f"""
{CONVERT.format("dem")}
compute-sssp s.zarr --sources huts.geojson --into a --backlink b.tif --allocation al.tif
compute-sssp s.zarr --sources towns.geojson --into b --cost surface
""",
    "index": f"{CONVERT.format('whole')}\nbuild-index s.zarr",
    "mixed": f"""
{CONVERT.format("dem")}
flow-direction s.zarr
basins s.zarr
slope s.zarr --aspect aspect
""",
    "all": f"""
{CONVERT.format("dem")}
{LAYERS}
compute-mst s.zarr --weight flow
flow-direction s.zarr
flow-accumulation s.zarr
fill s.zarr
flow-accumulation s.zarr --method dinf --areas --into divided
slope s.zarr --aspect aspect
basins s.zarr
streams s.zarr --threshold 60
hand s.zarr --threshold 60
compute-sssp s.zarr --sources huts.geojson --backlink b.tif --allocation a.tif
label-components s.zarr --where "elevation > 500"
contours s.zarr contours.geojson --interval 50
export s.zarr dem_again.tif
""",
}
"""Lines that make the stores, by name."""

A, B = "--sources huts.geojson", "--sources towns.geojson"

CASES = {
    "nothing": """
convert-dataset dem.tif s.zarr --block-size 64
convert-dataset whole.tif s.zarr --block-size 64 --compress zstd
convert-dataset dem.tif s.zarr --block-size 64 --round --clamp-min 250 --nodata -5
convert-dataset dem.tif s.zarr --block-size 64 --round --dtype int16
- convert-dataset dem.tif s.zarr --block-size 128 --bounds 501000 4995000 509000 4999000
- convert-dataset dem.tif s.zarr
convert-dataset west.tif east.tif s.zarr --block-size 64
- convert-dataset east.tif west.tif s.zarr --block-size 64 --round
- convert-dataset west.tif far.tif s.zarr --block-size 64 --nodata -1
- convert-dataset tiles.tif s.zarr --block-size 64 --compress blosc-lz4
- convert-dataset strips.tif s.zarr --block-size 64
- convert-dataset bands.tif s.zarr --block-size 64 --band 2
- convert-dataset exact.tif s.zarr --block-size 64
- convert-dataset masked.tif s.zarr --block-size 64 --nodata -32768
- convert-dataset small.asc s.zarr --crs EPSG:32633
- convert-dataset small.grass s.zarr --block-size 64 --crs EPSG:32633
- convert-dataset codes.tif s.zarr --block-size 64 --layer flow_direction --encoding esri
- convert-dataset globe.tif s.zarr --block-size 64

compute-mst dem.tif -o out/mst.tif
label-components dem.tif --where "elevation > 500" -o out/parts.tif --table out/parts.csv
accumulate dem.tif -o out/sums.tif --compress deflate
calc dem.tif "elevation * 2" -o out/double.tif --cog
corridor dem.tif --sources huts.geojson --targets towns.geojson -o out/corridor.tif
rasterize dem.tif --features rivers.geojson -o out/rivers.tif
slope dem.tif -o out/slope.tif
slope dem.tif -o out/slope.zarr
slope globe.tif -o out/slope.tif
burn dem.tif --streams rivers.geojson --depth 9 -o out/burned.tif
breach dem.tif --max-distance 20 -o out/breached.tif
flow-direction dem.tif -o out/directions.tif
flow-direction dem.tif --store kept.zarr -o out/directions.tif
flow-accumulation dem.tif -o out/sums.tif
fill dem.tif -o out/filled.tif --compress lzw
hand dem.tif --threshold 60 -o out/hand.tif
basins dem.tif -o out/basins.tif --table out/basins.csv
depressions dem.tif -o out/depressions.tif --table out/depressions.csv
fill-spill-merge dem.tif --rain rain.tif -o out/water.tif
watershed dem.tif --pour-points gauges.geojson --snap 200 -o out/watershed.tif
streams dem.tif --threshold 60 -o out/streams.tif --lines out/streams.geojson
terrain-indices dem.tif --twi twi -o out/twi.tif
compute-sssp dem.tif --sources huts.geojson --friction friction.tif --cost friction -o out/d.tif
compute-sssp globe.tif --source-rowcol 30,20 --cost surface -o out/d.tif
cost-matrix dem.tif --sources huts.geojson -o out/matrix.csv
least-cost-network dem.tif --sources huts.geojson -o out/network.geojson
network dem.tif out/lines.geojson --min-length 300
polygons landcover.tif out/polygons.geojson
contours dem.tif out/contours.geojson --interval 50
- demo out/demo
- help slope
- compile slope --dtype int16
- map --help
""",
    "heights": """
compute-mst s.zarr
compute-mst s.zarr --method contract
compute-mst s.zarr --weight absdiff --connectivity 4
compute-mst s.zarr --weight absdiff --connectivity 4 --method contract
compute-mst s.zarr --weight flow
compute-mst s.zarr --weight flow --connectivity 4 --method contract
label-components s.zarr --where "elevation > 500" --table out/parts.csv
label-components s.zarr --where "elevation > 500 and not elevation > 600" --connectivity 4
- label-components s.zarr --where "nodata(elevation)" --table out/parts.geojson
- slope s.zarr --compress-layers zstd
slope s.zarr --aspect aspect
burn s.zarr --streams rivers.geojson --depth 2.5
breach s.zarr --max-distance 20 --lines out/cuts.geojson
breach s.zarr --max-distance 20 --max-depth 8 --inner-voids
flow-direction s.zarr
flow-direction s.zarr --flats gradient --into gradient
flow-direction s.zarr --depressions fill
flow-direction s.zarr --depressions breach --max-distance 20
flow-direction s.zarr --depressions breach --max-distance 20 --flats gradient
flow-direction s.zarr --burn rivers.geojson --burn-depth 10
flow-direction s.zarr --outlets outlets.geojson
flow-direction s.zarr --outlets outlets.geojson --add-outlets --inner-voids
- flow-direction s.zarr --force-outward
- flow-direction s.zarr --outlet-rowcol 150,20
fill s.zarr
fill s.zarr --epsilon
fill s.zarr --keep-deeper-than 15
fill s.zarr --keep-deeper-than 5 --keep-larger-than 9
fill s.zarr --outlets outlets.geojson --directions to_outlets
- fill s.zarr --inner-voids --keep-larger-than 2ha
contours s.zarr out/contours.geojson --interval 50 --base 7
contours s.zarr out/contours.geojson --breaks 300,450,600
contours s.zarr out/areas.geojson --interval 50 --polygons
- contours s.zarr out/areas.geojson --breaks 300,450,600 --polygons --cumulative
- contours s.zarr out/contours.gpkg --interval 100
- contours s.zarr out/contours.parquet --interval 100
- contours s.zarr out/contours.fgb --interval 100
export s.zarr out/dem.tif
export s.zarr out/dem.tif --cog
export s.zarr out/dem.zarr
- export s.zarr out/dem.tif --compress lzw --bounds 501000 4995000 509000 4999000
- export s.zarr out/dem.tif --compress zstd
- export s.zarr out/dem.tif --cog --compress deflate
build-index s.zarr --cost surface
build-index s.zarr --tile 32 --cost tobler --reverse
compute-sssp s.zarr --sources huts.geojson --cost tobler --build-index
accumulate s.zarr
network s.zarr out/lines.geojson --min-length 300
streams s.zarr --threshold 60
basins s.zarr
hand s.zarr --threshold 60 --distance far
watershed s.zarr --pour-points gauges.geojson
depressions s.zarr
terrain-indices s.zarr --twi twi
flow-accumulation s.zarr
flow-accumulation s.zarr --method dinf
info s.zarr
""",
    "inputs": """
calc s.zarr "where(elevation > 500, 2, 0.5) * friction" --into steep
calc s.zarr "coalesce(friction, 0) + sqrt(abs(elevation))" --dtype float32
- calc s.zarr "elevation > 500 and not landcover == 3"
- calc s.zarr "nodata(friction)"
- calc s.zarr "min(landcover, 3) - max(walls, 2)" --dtype int16
calc s.zarr landcover --reclass classes.csv --into classes
- calc s.zarr landcover --reclass few.csv --default 7
- calc s.zarr landcover --reclass few.csv --default nodata
rasterize s.zarr --features rivers.geojson --into rivers
rasterize s.zarr --features rivers.geojson --field width --onto friction
- rasterize s.zarr --features lakes.geojson --value nodata --onto elevation
- rasterize s.zarr --features zones.tif --value 3
- burn s.zarr --streams zones.tif --depth 3
compute-sssp s.zarr --sources huts.geojson
compute-sssp s.zarr --sources huts.geojson --backlink out/b.tif --allocation out/a.tif -o out/d.tif
compute-sssp s.zarr --sources huts.geojson --cost surface --all-ties out/t.tif --connectivity 4
compute-sssp s.zarr --sources huts.geojson --cost tobler --reverse --backlink out/b.tif
compute-sssp s.zarr --sources huts.geojson --cost langmuir --connectivity 16 --backlink out/b.tif
compute-sssp s.zarr --source-edge --cost minimax --allocation out/a.tif
compute-sssp s.zarr --sources huts.geojson --cost friction --friction friction --backlink out/b.tif
compute-sssp s.zarr --sources huts.geojson --friction landcover --metric continuous
compute-sssp s.zarr --sources huts.geojson --barriers walls --no-corner-cutting
compute-sssp s.zarr --sources huts.geojson --barriers rivers.geojson --cost surface
compute-sssp s.zarr --sources huts.geojson --cost "length * exp(abs(slope)) * friction" --friction friction
- compute-sssp s.zarr --sources huts.geojson --cost-field start --cost surface --allocation out/a.tif
- compute-sssp s.zarr --sources huts.geojson --cost "length * k + landcover" --parameter k=2
- compute-sssp s.zarr --sources huts.geojson --cost surface --vertical-factor factors.txt
- compute-sssp s.zarr --sources huts.geojson --cost herzog --max-slope 1.5
- compute-sssp s.zarr --sources zones.tif --outside skip --on-nodata skip --allocation out/a.tif
- compute-sssp s.zarr --sources huts.geojson --cost-field limit --id-field id --cost tobler --max-cost 4000
compute-sssp s.zarr --sources huts.geojson --targets towns.geojson --stop-at-targets --path out/p.geojson
compute-sssp s.zarr --sources huts.geojson --method dijkstra --cost surface
compute-sssp s.zarr --sources huts.geojson --cost surface --build-index --method index
- compute-sssp s.zarr --source-rowcol 3,5 --target-rowcol 200,300 --path out/p.gpkg --into one
- compute-sssp s.zarr --sources lakes.geojson --on-nodata snap --snap 5px --dtype float32 -o out/d.tif
cost-matrix s.zarr --sources huts.geojson --targets towns.geojson -o out/m.csv
cost-matrix s.zarr --sources huts.geojson -o out/m.csv --cost tobler --path out/p.geojson
cost-matrix s.zarr --sources huts.geojson --nearest 2 -o out/m.csv --friction friction --cost friction
- cost-matrix s.zarr --sources huts.geojson --max-cost-field limit --id-field name -o out/m.csv --cost surface
- cost-matrix s.zarr --sources huts.geojson --max-cost 3000 -o out/m.parquet --cost tobler --reverse --connectivity 16
least-cost-network s.zarr --sources huts.geojson -o out/n.geojson --table out/n.csv --cost surface
least-cost-network s.zarr --sources huts.geojson --pairs delaunay -o out/n.geojson --barriers walls
least-cost-network s.zarr --sources huts.geojson --pairs all -o out/n.geojson --cost tobler
least-cost-network s.zarr --sources huts.geojson --nearest 1 -o out/n.geojson --cost friction --friction friction
corridor s.zarr --sources huts.geojson --targets towns.geojson --cost tobler --within 5%
corridor s.zarr --sources huts.geojson --targets towns.geojson --friction friction --connectivity 4
corridor s.zarr --sources huts.geojson --pairs delaunay --cost surface --within 5% --table out/c.csv
build-index s.zarr --cost friction --friction friction
build-index s.zarr --barriers walls --connectivity 4 --tile 64
overviews s.zarr
- overviews s.zarr --layer elevation --resampling max
- overviews s.zarr --layer landcover --resampling mode
- overviews s.zarr --layer friction --resampling min
- overviews s.zarr --layer friction --resampling average
- overviews s.zarr --layer elevation --resampling nearest
layers s.zarr
- layers s.zarr rename friction cost
- layers s.zarr remove rain walls
polygons s.zarr out/p.geojson --layer landcover
- polygons s.zarr out/p.gpkg --layer landcover
- polygons s.zarr out/p.parquet --layer landcover
- polygons s.zarr out/p.fgb --layer landcover
- export s.zarr out/friction.tif --layer friction
fill-spill-merge s.zarr --rain rain --table out/water.csv
info s.zarr
""",
    "whole": """
compute-mst s.zarr
compute-mst s.zarr --method contract --weight flow
compute-sssp s.zarr --sources huts.geojson --backlink out/b.tif --allocation out/a.tif
compute-sssp s.zarr --sources huts.geojson --barriers walls
compute-sssp s.zarr --sources huts.geojson --method dijkstra
build-index s.zarr
flow-direction s.zarr
fill s.zarr
breach s.zarr --max-distance 20
slope s.zarr
polygons s.zarr out/p.geojson --layer elevation
contours s.zarr out/c.geojson --interval 50
""",
    "globe": """
compute-sssp s.zarr --source-rowcol 30,20 --cost surface --backlink out/b.tif
compute-sssp s.zarr --source-rowcol 30,20 --cost tobler --wrap no --connectivity 16
slope s.zarr --aspect aspect
flow-direction s.zarr
terrain-indices s.zarr --twi twi --spi spi --ls ls
cost-matrix s.zarr --source-rowcol 30,20 --source-rowcol 50,170 -o out/m.csv --cost surface
basins s.zarr --table out/basins.csv
""",
    "tree": """
accumulate s.zarr --directions paths
accumulate s.zarr --areas
accumulate s.zarr --outlets outlets.geojson --directions paths
- accumulate s.zarr --outlets outlets.geojson --add-outlets
- accumulate s.zarr --force-outward
network s.zarr out/lines.geojson --min-length 300
network s.zarr out/lines.geojson --keep huts.geojson --min-length 2000
- network s.zarr out/lines.gpkg --min-length 900
""",
    "flow": """
flow-accumulation s.zarr --areas --into areas
flow-accumulation s.zarr --weights rain --into weighted
flow-accumulation s.zarr --weights rain --statistic mean --into weighted
flow-accumulation s.zarr --weights rain --statistic max --into weighted
flow-accumulation s.zarr --weights rain --statistic min --into weighted
flow-accumulation s.zarr --weights rain --statistic below --into weighted
flow-accumulation s.zarr --edge-cells --into edges
- flow-accumulation s.zarr --exclude-self --into above
flow-accumulation s.zarr --method dinf --into divided
flow-accumulation s.zarr --method mfd --into divided
flow-accumulation s.zarr --method quinn --areas --into divided
flow-accumulation s.zarr --method mfd --exponent 4 --weights rain --into divided
basins s.zarr --table out/basins.csv
depressions s.zarr --table out/depressions.csv
depressions s.zarr --min-depth 4 --min-area 5000 --min-volume 900 --conditioned flat
fill-spill-merge s.zarr --rain 0.5
streams s.zarr --threshold 60 --lines out/streams.geojson
streams s.zarr --threshold 5ha --order shreve
streams s.zarr --threshold 60 --order horton
streams s.zarr --threshold 60 --order hack
streams s.zarr --threshold 60 --order topological
streams s.zarr --threshold 60 --order link
- streams s.zarr --threshold 60 --lines out/streams.gpkg
hand s.zarr --threshold 60 --distance far
hand s.zarr --threshold 60 --method dinf --distance far
hand s.zarr --to-outlets --distance far
watershed s.zarr --pour-points gauges.geojson --snap 200 --table out/watersheds.csv
watershed s.zarr --pour-points gauges.geojson --snap 200 --snap-area 100
- watershed s.zarr --pour-point-rowcol 150,20 --pour-point-rowcol 200,300
terrain-indices s.zarr --twi twi --spi spi --ls ls
- terrain-indices s.zarr --twi twi --min-slope 0.5
- export s.zarr out/codes.tif --layer flow_direction --encoding grass
- export s.zarr out/codes.tif --layer flow_direction --encoding ldd
- export s.zarr out/codes.tif --layer flow_direction --encoding taudem
- export s.zarr out/codes.tif --layer flow_direction --encoding whitebox
- export s.zarr out/codes.tif --layer flow_direction --encoding saga
""",
    "streams": """
watershed s.zarr --links links --table out/watersheds.csv
hand s.zarr --streams streams
verify s.zarr
- verify s.zarr --file streams.geojson
""",
    "distances": """
corridor s.zarr a b --within 900
corridor s.zarr a b
- export s.zarr out/b.tif --layer a_backlink --encoding esri-backlink
- export s.zarr out/b.tif --layer a_backlink --encoding r.cost
- polygons s.zarr out/p.geojson --layer a_allocation --names huts.geojson --id-field name
- contours s.zarr out/c.geojson --layer a --polygons --breaks 200,400
- layers s.zarr rename a walk
- layers s.zarr remove b
- verify s.zarr
""",
    "index": """
- query-index s.zarr --pairs pairs.csv -o out/costs.csv --path out/p.geojson
- query-index s.zarr --from-rowcol 150,20 --to-rowcol 40,385
- compute-sssp s.zarr --sources huts.geojson --method index
- verify s.zarr
- info s.zarr
""",
    "mixed": """
polygons s.zarr out/basins.geojson --layer basins
- overviews s.zarr
""",
    "all": """
verify s.zarr
verify s.zarr --data
- verify s.zarr --file dem_again.tif
- verify s.zarr --file contours.geojson
- verify s.zarr --accept-changes slope
info s.zarr
layers s.zarr
- layers s.zarr remove elevation --force
plan s.zarr --for mst
plan s.zarr --for sssp --cost tobler
""",
}
"""Command lines by the store that they start from."""

WRONG = """
frobnicate
convert-dataset
convert-dataset dem.tif
convert-dataset none.tif new.zarr
convert-dataset empty.tif new.zarr
convert-dataset text.tif new.zarr
convert-dataset cut.tif new.zarr
convert-dataset dem.tif s.zarr
convert-dataset bands.tif new.zarr
convert-dataset dem.tif new.zarr --block-size 100
convert-dataset dem.tif new.zarr --nodata none
convert-dataset dem.tif new.zarr --memory-limit 10MB
convert-dataset dem.tif new.zarr --memory-limit '12 parsecs'
convert-dataset dem.tif new.zarr --bounds 1 2 3 4
convert-dataset dem.tif new.zarr --threads 0
convert-dataset dem.tif new.zarr --layer ../x
convert-dataset dem.tif nowhere/s.zarr
convert-dataset whole.tif new.zarr --round --clamp-min nan
convert-dataset large.tif new.zarr --round
compute-mst none.zarr
compute-mst s.zarr --weight min
compute-mst s.zarr --connectivity 6
compute-mst s.zarr --layer nothing
label-components s.zarr
label-components s.zarr --where "elevation >"
label-components s.zarr --where "nothing > 3"
accumulate s.zarr --outlet 1,2
accumulate s.zarr --into mst
network s.zarr lines.txt
network s.zarr out/n.geojson --min-length -3
calc s.zarr "elevation +"
calc s.zarr "nothing * 2"
calc s.zarr elevation --into elevation
calc s.zarr landcover --reclass few.csv
corridor s.zarr
corridor s.zarr a b
corridor s.zarr --sources huts.geojson --targets towns.geojson --cost minimax
corridor s.zarr --sources huts.geojson --pairs all --cost tobler
rasterize s.zarr --features none.geojson
rasterize s.zarr --features rivers.geojson --field depth
slope s.zarr --layer nothing
slope s.zarr --into elevation
slope s.zarr -o out/slope.png
slope dem.tif
slope s.zarr --memory-limit 1MB
burn s.zarr --streams rivers.geojson
burn s.zarr --streams rivers.geojson --depth -1
breach s.zarr --max-distance 0
breach s.zarr --max-depth -2
flow-direction s.zarr --flats gradient --depressions carve
flow-direction s.zarr --max-depth 5
flow-direction s.zarr --burn rivers.geojson
flow-direction s.zarr --outlet-rowcol 999,1
flow-accumulation s.zarr --method dinf --edge-cells
flow-accumulation s.zarr --statistic mean
flow-accumulation s.zarr --weights nothing
fill s.zarr --epsilon --keep-deeper-than 3
fill s.zarr --keep-larger-than 3parsecs
hand s.zarr
hand s.zarr --threshold 0
basins s.zarr --table out/basins.txt
depressions s.zarr --min-depth -1
fill-spill-merge s.zarr
fill-spill-merge s.zarr --rain -3
watershed s.zarr
watershed s.zarr --pour-point 1,2
watershed s.zarr --links nothing
streams s.zarr
streams s.zarr --threshold 60 --order best
terrain-indices s.zarr
terrain-indices s.zarr --twi elevation
polygons s.zarr out/p.geojson
polygons s.zarr out/p.geojson --layer nothing
contours s.zarr out/c.geojson
contours s.zarr out/c.geojson --breaks 5,3
compute-sssp s.zarr
compute-sssp s.zarr --source 1,2
compute-sssp s.zarr --source-rowcol 0,390
compute-sssp s.zarr --sources none.gpkg
compute-sssp s.zarr --sources huts.geojson --cost walking
compute-sssp s.zarr --sources huts.geojson --cost friction
compute-sssp s.zarr --sources huts.geojson --cost "length *"
compute-sssp s.zarr --sources huts.geojson --parameter a=1
compute-sssp s.zarr --sources huts.geojson --stop-at-targets
compute-sssp s.zarr --sources huts.geojson --max-cost -1
compute-sssp s.zarr --sources huts.geojson --method index
compute-sssp s.zarr --sources huts.geojson --wrap yes
cost-matrix s.zarr --sources huts.geojson
cost-matrix s.zarr --sources huts.geojson -o out/m.txt
cost-matrix s.zarr --sources huts.geojson --nearest 0 -o out/m.csv
least-cost-network s.zarr --sources huts.geojson --cost tobler -o out/n.geojson
least-cost-network s.zarr --source-rowcol 150,20 -o out/n.geojson
build-index s.zarr --tile 7
query-index s.zarr --from-rowcol 1,1 --to-rowcol 9,9
info dem.tif
layers s.zarr remove nothing
overviews s.zarr --layer landcover --resampling mean
overviews s.zarr --layer nothing
export s.zarr out/dem.png
export s.zarr out/dem.tif --layer nothing
export s.zarr out/dem.tif --bounds 1 2 3 4
export s.zarr out/dem.tif --encoding grass
verify s.zarr --file none.tif
verify s.zarr --layer slope
verify none.zarr
plan 20000
plan 300x400 --for overviews
plan 300x400 --for mst --cost tobler
map none.zarr
compile frobnicate
demo dem.tif
"""
"""Command lines that are refused, over the store "inputs"."""

SIZES = "300x400", "20000x30000", "300000x400000"

PLANS = """
--for convert
--for export
--for mst
--for mst --weight flow
--for sssp
--for sssp --cost tobler --backlink --allocation
--for sssp --cost friction --friction float32 --barriers uint8 --connectivity 16
--for sssp --cost friction --friction float32 --metric continuous
--for cost-matrix --points 100
--for cost-matrix --points 100 --targets 20 --cost tobler
--for least-cost-network --points 100
--for least-cost-network --points 100 --pairs all
--for index
--for index --tile 32 --cost tobler
--for components
--for accumulate
--for flow-direction
--for flow-direction --flats gradient
--for flow-accumulation
--for flow-accumulation --method dinf
--for fill
--for fill --epsilon
--for hand
--for hand --method dinf
--for basins
--for depressions
--for fill-spill-merge
--for watershed
--for network
--for polygons
--for contours
--for slope
--for streams
--for terrain-indices
--for breach
--for burn
--for calc --layers 3
--for rasterize
--for corridor
--for corridor --layers 2
"""
"""What is planned, for each of SIZES."""


def lines_of(text: str) -> list[str]:
    return [line for line in text.strip().splitlines() if line]


def commands() -> set[str]:
    """The commands that have a case."""
    return {
        line.removeprefix("- ").split()[0] for text in CASES.values() for line in lines_of(text)
    }
