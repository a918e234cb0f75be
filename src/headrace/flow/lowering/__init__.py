"""From tensor operations of one dispatch to a kernel.

`indexing.py` maps indices through movement operations, `frame.py` says at which point of
a kernel's domain a value is computed (and so what fuses), `body.py` makes scalar
operations, `pull.py` computes one element of a value, `kernel.py` puts phases together.
"""
