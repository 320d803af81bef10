"""Model zoo: thousands of small networks, trained in blocks, kept in checked shards, read lazily."""
