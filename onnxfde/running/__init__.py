"""Models executed: samples in, values out, two models side by side."""
