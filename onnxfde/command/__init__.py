"""The command line: words in, tables out."""
