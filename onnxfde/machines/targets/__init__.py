"""Where models are measured; a target is a file here that `base.Target` describes."""
