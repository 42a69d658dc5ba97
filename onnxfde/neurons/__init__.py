"""One layer as arrays, and how few neurons it needs."""
