"""Puts back what runs changed: a pure plan, a protocol that applies it, and the recovery after a crash."""
