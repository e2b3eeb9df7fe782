"""Stream burning: `burn`."""
