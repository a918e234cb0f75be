"""Operators on strings, which no compiled code knows: their numpy meaning, run on the host."""
