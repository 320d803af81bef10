"""Distance to HMC's predictions against bytes on disk."""
