"""Imported last by the server that workers are forked from; imports what all workers need."""

import gc
import logging

import distributed.nanny  # noqa: F401

from . import worker  # noqa: F401
from .forks import load_numba

load_numba()
logging.getLogger("distributed").setLevel(logging.CRITICAL)  # as in the command
gc.freeze()  # a collection in a fork, such as the last one, would look at all of it, and so copy it
