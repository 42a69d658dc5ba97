"""Engines that run a network encrypted or prove what it computed, in a process of their own."""
