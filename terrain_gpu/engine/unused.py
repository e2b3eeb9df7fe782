"""Imported first by the server that workers are forked from."""

from .forks import leave_out_unused

leave_out_unused()
