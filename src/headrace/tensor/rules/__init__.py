"""Rewrites of one operation at a time, by family; `passes/canonicalize.py` applies them.

A rule looks at an operation whose operands are canonical already and gives the value that
replaces its only result, or None. It builds through the builder it is given.
"""
