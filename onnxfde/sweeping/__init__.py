"""Trade-off curves: many models, many sizes, on the machines at hand."""
