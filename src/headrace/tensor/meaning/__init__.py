"""What each tensor operation computes, in numpy: the oracle for every backend.

One file a family; `interp.py` holds the table. A function takes `Arguments` and returns
one array (a list of arrays where the operation has several results), never in place.
"""
