"""The passes: one file each, every pass a frozen dataclass."""
