"""One small pure module a host: its hook events in our words."""
