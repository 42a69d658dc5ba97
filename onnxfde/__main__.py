"""`python -m onnxfde`."""

from onnxfde.command.main import main

if __name__ == "__main__":
    main()
