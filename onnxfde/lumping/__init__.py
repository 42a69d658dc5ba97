"""The paper: ε-FDE and ε-BDE of polynomial systems and of layers."""
