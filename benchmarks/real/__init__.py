"""Networks that people deploy, with real inputs and scores."""
