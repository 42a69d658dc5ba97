"""The paper's evaluation: its systems, networks, methods, tables and plots."""
