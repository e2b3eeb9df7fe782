<!DOCTYPE qgis PUBLIC "http://mrcc.com/qgis.dtd" "SYSTEM">
<qgis version="3.22.0" styleCategories="Symbology">
 <pipe>
  <rasterrenderer type="singlebandpseudocolor" band="1" opacity="1" alphaBand="-1" classificationMin="1" classificationMax="1000000000">
   <rastershader>
    <colorrampshader colorRampType="INTERPOLATED" classificationMode="1" clip="0" minimumValue="1" maximumValue="1000000000">
     <colorramp name="[source]" type="gradient">
      <Option type="Map">
       <Option name="color1" type="QString" value="247,251,255,255"/>
       <Option name="color2" type="QString" value="4,27,61,255"/>
       <Option name="discrete" type="QString" value="0"/>
       <Option name="rampType" type="QString" value="gradient"/>
       <Option name="stops" type="QString" value="0.1111111111111111;222,235,247,255:0.2222222222222222;198,219,239,255:0.3333333333333333;158,202,225,255:0.4444444444444444;107,174,214,255:0.5555555555555556;66,146,198,255:0.6666666666666666;33,113,181,255:0.7777777777777778;8,81,156,255:0.8888888888888888;8,48,107,255"/>
      </Option>
     </colorramp>
     <item value="1" label="1" color="#f7fbff" alpha="255"/>
     <item value="10" label="10" color="#deebf7" alpha="255"/>
     <item value="100" label="100" color="#c6dbef" alpha="255"/>
     <item value="1000" label="1,000" color="#9ecae1" alpha="255"/>
     <item value="10000" label="10,000" color="#6baed6" alpha="255"/>
     <item value="100000" label="100,000" color="#4292c6" alpha="255"/>
     <item value="1000000" label="1,000,000" color="#2171b5" alpha="255"/>
     <item value="10000000" label="10,000,000" color="#08519c" alpha="255"/>
     <item value="100000000" label="100,000,000" color="#08306b" alpha="255"/>
     <item value="1000000000" label="1,000,000,000" color="#041b3d" alpha="255"/>
     <rampLegendSettings useContinuousLegend="0" direction="0" orientation="2" prefix="" suffix="" minimumLabel="" maximumLabel=""/>
    </colorrampshader>
   </rastershader>
  </rasterrenderer>
 </pipe>
</qgis>
