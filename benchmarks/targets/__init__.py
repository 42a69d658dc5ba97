"""Targets in place of ε: are they met on rows never seen, how small is the result, at what cost?"""
