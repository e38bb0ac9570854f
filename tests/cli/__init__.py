"""Stories of the command line, on the real programs."""
