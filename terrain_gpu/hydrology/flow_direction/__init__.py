"""D8 flow directions: `flow_direction`; `gradient` for those of a filled DEM."""
