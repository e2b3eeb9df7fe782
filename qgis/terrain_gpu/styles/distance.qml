<!DOCTYPE qgis PUBLIC "http://mrcc.com/qgis.dtd" "SYSTEM">
<qgis version="3.22.0" styleCategories="Symbology">
 <pipe>
  <rasterrenderer type="singlebandpseudocolor" band="1" opacity="1" alphaBand="-1" classificationMin="0" classificationMax="1000">
   <rastershader>
    <colorrampshader colorRampType="INTERPOLATED" classificationMode="1" clip="0" minimumValue="0" maximumValue="1000">
     <colorramp name="[source]" type="gradient">
      <Option type="Map">
       <Option name="color1" type="QString" value="68,1,84,255"/>
       <Option name="color2" type="QString" value="253,231,37,255"/>
       <Option name="discrete" type="QString" value="0"/>
       <Option name="rampType" type="QString" value="gradient"/>
       <Option name="stops" type="QString" value="0.25;59,82,139,255:0.5;33,145,140,255:0.75;94,201,98,255"/>
      </Option>
     </colorramp>
     <item value="0" label="0" color="#440154" alpha="255"/>
     <item value="250" label="250" color="#3b528b" alpha="255"/>
     <item value="500" label="500" color="#21918c" alpha="255"/>
     <item value="750" label="750" color="#5ec962" alpha="255"/>
     <item value="1000" label="1000" color="#fde725" alpha="255"/>
    </colorrampshader>
   </rastershader>
  </rasterrenderer>
 </pipe>
</qgis>
