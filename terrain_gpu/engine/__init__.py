"""Shared by all operations: plans under a memory limit, streams of blocks, runs and clusters."""
