"""A thin coat over xDSL: types, locations, passes, legality and diagnostics.

The only package that patches or works around xDSL; stages build on it.
"""
