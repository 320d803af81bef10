"""Studies: the only place where things meet, touch disk or read a config."""
