"""The oracle: knows nothing of the code, holds the tree after an undo against the tree before the command."""
