"""The spanning forest as a network of lines: `extract_network`."""
