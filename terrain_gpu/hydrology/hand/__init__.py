"""Height above the nearest drainage: `hand`; `divided` over several directions."""
