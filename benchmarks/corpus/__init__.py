"""The commands on models that nobody here wrote."""
