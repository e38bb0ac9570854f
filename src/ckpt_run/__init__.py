"""Makes what a command did to your files undoable, exactly."""
