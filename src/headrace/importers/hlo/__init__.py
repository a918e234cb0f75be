"""What the two HLO importers share: a neutral tree of operations, and its conversion.

`importers/legacy_hlo.py` reads 2019-2020 `xla_hlo` text, `importers/stablehlo.py` walks
jaxlib's MLIR objects; both build `tree.HloModule`, and `convert.py` makes the tensor stage.
"""
