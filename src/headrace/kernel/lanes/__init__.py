"""Kernels one lane per outer point: what the naive emitters of the GPU targets share.

`lower.py` walks a `Kernel` and speaks to a `Machine` (`machine.py`), which is a SPIR-V
builder, a writer of Triton source, or numpy in the tests. `scalar.py` gives every
elementwise operation in the machine's primitives, `integers.py`, `complex_numbers.py`,
`elementary.py` and `trigonometry.py` what it needs, `formats.py` floats narrower than 32
bits.
"""
