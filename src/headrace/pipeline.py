"""The phases and their passes, in order, with the reason beside each.

`run` takes a model from one phase to another; `api` and `headrace opt` call it and
nothing else does.
"""
