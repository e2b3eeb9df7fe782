"""Processes that die at a given change to the file system."""

from __future__ import annotations

import gc
import os
import sys


def fork(action):
    """Run `action` in a forked child; exit code 0, 1 if it raised, or its own."""
    child = os.fork()
    if child == 0:
        gc.disable()  # collecting would touch, hence copy, every page of the parent
        code = 1
        try:
            action()
            code = 0
        finally:
            os._exit(code)
    return child


def wait(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def die_at(count, folder, action):
    """Fork, run `action`, and die just before the `count`-th change to the file system in `folder`.

    Every opening for writing, rename, removal, new folder counts: CPython's audit events.
    Returns True when the child died, False when the action ended first.
    """
    mark = str(folder)
    left = [count]

    def watch(event, arguments):
        if event == "open":
            name, _, flags = arguments
            counts = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        elif event in ("os.rename", "os.mkdir", "os.remove", "os.rmdir"):
            name, counts = arguments[0], True
        else:
            return
        # Removal of trees goes by file descriptor: its names are relative.
        if counts and (mark in str(name) or event in ("os.remove", "os.rmdir")):
            left[0] -= 1
            if left[0] == 0:
                os._exit(42)

    def child():
        sys.addaudithook(watch)
        action()

    code = wait(fork(child))
    assert code in (0, 42)
    return code == 42
