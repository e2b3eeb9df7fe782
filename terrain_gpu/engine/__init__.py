"""What all operations share: plans under a memory limit, and streams of blocks."""
