"""Networks. Flax lives only here."""
