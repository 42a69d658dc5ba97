"""Pages to look at: one file each, which needs nothing else."""
