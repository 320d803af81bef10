"""Studies: the only place where things meet, make run directories or read a config."""
