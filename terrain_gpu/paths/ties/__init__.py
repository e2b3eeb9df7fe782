"""All steps back on least-cost paths: `tied_steps`."""
