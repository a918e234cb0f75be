"""How values stand in memory: sites, decisions, halos and packed weights.

`passes/assign_layouts.py` runs them in order.
"""
