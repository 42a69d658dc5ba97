"""The command line on thousands of broken, odd and hostile files: what must never happen."""
