"""One file for each case: its question, and what it measures."""
