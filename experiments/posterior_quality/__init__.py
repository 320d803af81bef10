"""Quality of approximate posteriors: one mode and many, against independently trained networks."""
