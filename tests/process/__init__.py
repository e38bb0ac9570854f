"""A command run by the wrapper, and what goes on after it."""
