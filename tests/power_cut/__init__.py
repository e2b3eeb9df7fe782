"""Power cuts: record runs, make every state a disk may be left in, and resume the run.

- `recorder.c` logs what a run does to files; `recording` runs a function under it.
- `model` says which states the rules of file systems allow after a crash, and makes them.
- `cases` holds the commands, what they start from, and what must come out.
"""
