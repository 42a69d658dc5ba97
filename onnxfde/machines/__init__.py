"""Models measured on machines: this one, an emulated one, a board."""
