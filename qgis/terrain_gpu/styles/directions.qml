<!DOCTYPE qgis PUBLIC "http://mrcc.com/qgis.dtd" "SYSTEM">
<qgis version="3.22.0" styleCategories="Symbology">
 <pipe>
  <rasterrenderer type="paletted" band="1" opacity="1" alphaBand="-1">
   <colorPalette>
    <paletteEntry value="0" label="outlet" color="#202020" alpha="255"/>
    <paletteEntry value="1" label="E" color="#e41a1c" alpha="255"/>
    <paletteEntry value="2" label="SE" color="#ff7f00" alpha="255"/>
    <paletteEntry value="4" label="S" color="#ffd92f" alpha="255"/>
    <paletteEntry value="8" label="SW" color="#a6d854" alpha="255"/>
    <paletteEntry value="16" label="W" color="#1b9e77" alpha="255"/>
    <paletteEntry value="32" label="NW" color="#41b6c4" alpha="255"/>
    <paletteEntry value="64" label="N" color="#377eb8" alpha="255"/>
    <paletteEntry value="128" label="NE" color="#984ea3" alpha="255"/>
   </colorPalette>
  </rasterrenderer>
 </pipe>
</qgis>
