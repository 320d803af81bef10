"""What several studies share: a config goes in; data, network, methods and samples come out."""
