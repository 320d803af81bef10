"""Figures of posteriors and their symmetries: our objects go in, matplotlib figures come out.

Every function returns a `matplotlib.figure.Figure`, which `savefig` writes and a notebook shows; nothing
touches pyplot or the global settings. `figure=` draws into an empty figure or subfigure instead of a new one.
"""

from symbnn.extras import extra

with extra("plot", "symbnn.plot"):
    from symbnn.plot.barrier import barrier
    from symbnn.plot.chains import rank, trace
    from symbnn.plot.groups import groups
    from symbnn.plot.pairs import pairs
    from symbnn.plot.reliability import reliability
    from symbnn.plot.spread import spread
    from symbnn.plot.transpositions import transpositions

__all__ = ["barrier", "groups", "pairs", "rank", "reliability", "spread", "trace", "transpositions"]
