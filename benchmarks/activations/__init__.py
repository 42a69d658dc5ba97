"""Error against size for networks with the usual activations, beside other pruning methods."""
