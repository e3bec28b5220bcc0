"""Released vLLMs, read out of their wheels by ranges, without installing or fetching them whole.

Always true here: a file is given out only if it is what its wheel's RECORD says; what was read
once is kept by its content, so that reading it again needs no network. Nothing is written but the
cache.
"""
