"""Training: one loop, one checkpoint file, whole or not there."""


class Stopped(Exception):
    """Raised after a run was asked to stop and has saved itself."""
