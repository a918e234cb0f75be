"""What the StableHLO specification forbids, checked on the neutral tree.

`module.py` walks a module; `rules.py` holds what rules share; each other file holds the rules
of one family. Sources: the constraints (C1), (C2), ... of each operation in the StableHLO
specification, and those of CHLO in its operation definitions.
"""
