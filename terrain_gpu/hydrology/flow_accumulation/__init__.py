"""Flow accumulation: `flow_accumulation`; `divided` over several directions."""
