"""What every study runs in: a command line goes in; a run directory, tables and a report come out."""
