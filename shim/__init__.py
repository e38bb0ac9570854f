"""Runs commands and talks to people; imports `capture`, never the other way round."""
