"""Knows files, Git and the store; never prints, never runs the user's command."""
