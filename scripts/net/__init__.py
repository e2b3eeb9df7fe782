"""The parts of record_net.py."""
