"""Benchmarks of terrain_gpu: `python -m bench` lists the cases."""
