"""Table 1 of the compact posterior: HMC, ensemble and VI as samples and as Gaussians, raw and aligned."""
