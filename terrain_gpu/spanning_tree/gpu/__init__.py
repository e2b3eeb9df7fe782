"""The spanning forest on a GPU."""
