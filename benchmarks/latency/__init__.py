"""Latency and size of merged networks, on this machine's processor and on emulated ARM."""
