"""Training: a loss and a recipe go in; trained networks, kept by epochs, come out."""
