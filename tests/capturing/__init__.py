"""Tests of the capture: what was before a command, and what it changed."""
