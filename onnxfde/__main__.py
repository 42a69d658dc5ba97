"""`python -m onnxfde`."""

from onnxfde.cli import main

if __name__ == "__main__":
    main()
