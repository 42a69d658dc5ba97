"""Running models: on samples, in parts, and side by side; and rounding them to 8 bits."""
