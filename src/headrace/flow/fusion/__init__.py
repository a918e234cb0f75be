"""Which operations share a dispatch.

`groups.py` is what is decided; `consumers.py` grows a reduction's dispatch downwards,
`producers.py` gives everything else a dispatch, `build.py` writes the regions.
"""
