"""Accuracy against multiply-adds for convolutional networks, beside other pruning methods."""
