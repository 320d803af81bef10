"""The search for the best labels: a matching problem goes in, permutations come out."""
