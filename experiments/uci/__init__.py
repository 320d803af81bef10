"""Regression on UCI tables: every method beside a peer, and compact posteriors of the draws."""
