"""Who wrote a file during a run: traced by the kernel, told by an editor, or known by time only."""
