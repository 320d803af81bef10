"""How studies show progress: the library's bar, on a terminal; a line every ten seconds in a log."""

from symbnn.inference import progress_bar

SHOWN = progress_bar(stream="stdout", leave=False)
"""`progress` of every method that a study runs; it makes room for the line of the finished stage."""
