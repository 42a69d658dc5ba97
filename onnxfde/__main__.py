"""`onnxfde` and `python -m onnxfde`: the entry point, which can be interrupted while it imports."""

import gc
import sys


def start() -> None:
    """Import the command line and run it."""
    try:
        from onnxfde.command.quick_imports import importing

        with importing():
            from onnxfde.command.main import main

        main()
    except KeyboardInterrupt:
        sys.stderr.write("onnxfde: interrupted\n")
        sys.exit(130)
    finally:
        gc.freeze()  # a process that ends need not search for garbage


if __name__ == "__main__":
    start()
