"""Faults by script: the disk fails, or the process dies, at each operation in turn."""
